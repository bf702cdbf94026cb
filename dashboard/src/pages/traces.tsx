// Trace: find messages by id, by key, or by where they stand: what is stuck, what was given up.

import { useState } from "preact/hooks"
import { get } from "../api/call"
import { useLoad } from "../api/load"
import type { Found, TopicPage } from "../api/types"
import { Choice, Text } from "../parts/field"
import { Icon } from "../parts/icon"
import { Empty, Loading, Refused } from "../parts/states"
import { type Column, Table } from "../parts/table"
import { GroupLink, Id, N, Page, Panel, Time } from "../parts/words"
import { amend, go, lifeOf, place } from "../route"
import { State } from "./life"

const STATES: [string, string][] = [
	["", "Any state"],
	["unacked", "Not settled"],
	["waiting", "Waiting"],
	["in flight", "In flight"],
	["retrying", "Retrying"],
	["acked", "Acked"],
	["rejected", "Rejected"],
	["dead-lettered", "Dead-lettered"],
	["expired", "Expired"],
	["skipped", "Skipped"],
]
const MOST = 500

export function Traces() {
	const { topic = "", key = "", group = "", state = "", older = "" } = place.value.query
	const [id, setId] = useState("")
	const asked = topic !== "" && (key !== "" || state !== "" || group !== "" || older !== "")
	const found = useLoad<{ found: Found[] }>(JSON.stringify([asked, topic, key, group, state, older]), async (signal) =>
		asked ? get("/v1/traces", { topic, key, group, state, older_than: older, limit: MOST }, signal) : { found: [] },
	)
	const names = useLoad<TopicPage>("names", (signal) => get<TopicPage>("/v1/topic-summaries", { limit: 1000 }, signal))
	const look = (event: Event) => {
		event.preventDefault()
		if (id.trim()) go(lifeOf(id.trim()))
	}
	return (
		<Page
			title="Trace"
			under="The whole life of a message: read out of the log and the ledgers, for as long as they are kept."
		>
			<div class="stack">
				<Panel title="By message id">
					<form class="filters" style={{ margin: 0 }} onSubmit={look}>
						<div class="search">
							<Icon name="search" size={14} />
							<input
								class="input mono"
								data-search
								aria-label="Message id"
								placeholder="orders/2/1841 or orders@494221-17"
								spellcheck={false}
								autocomplete="off"
								value={id}
								onInput={(event) => setId(event.currentTarget.value)}
							/>
						</div>
						<button type="submit" class="button primary" disabled={!id.trim()}>
							Show its life
						</button>
					</form>
				</Panel>
				<Panel title="By key and state">
					<div class="fields">
						<Text
							label="Topic"
							value={topic}
							list="topics"
							placeholder="orders"
							onInput={(value) => amend({ topic: value })}
						/>
						<datalist id="topics">
							{names.data?.topics.map((one) => (
								<option key={one.name} value={one.name} />
							))}
						</datalist>
						<Text label="Key" mono value={key} placeholder="any" onInput={(value) => amend({ key: value })} />
						<Text label="Group" value={group} placeholder="any" onInput={(value) => amend({ group: value })} />
						<Choice label="State" value={state} options={STATES} onInput={(value) => amend({ state: value })} />
						<Text label="For longer than" value={older} placeholder="5m" onInput={(value) => amend({ older: value })} />
					</div>
				</Panel>
				<div class="panel">
					{!asked ? (
						<Empty
							title="Say a topic, and a key or a state"
							icon="trace"
							command="trine trace orders --state unacked --older-than 5m"
						>
							“Not settled” for longer than 5m finds what is stuck.
						</Empty>
					) : found.data === null ? (
						found.error === null ? (
							<Loading what="Looking through the ledgers" />
						) : (
							<Refused error={found.error} again={found.again} />
						)
					) : found.data.found.length === 0 ? (
						<Empty title="No message is like that" icon="search">
							Nothing in {topic} has this key and state.
						</Empty>
					) : (
						<Results topic={topic} found={found.data.found} />
					)}
				</div>
			</div>
		</Page>
	)
}

function Results({ topic, found }: { topic: string; found: Found[] }) {
	const columns: Column<Found>[] = [
		{ id: "id", title: "Message", track: "minmax(120px, 1.4fr)", cell: (one) => <Id id={one.message_id} /> },
		{ id: "at", title: "Published", track: "minmax(90px, 1fr)", cell: (one) => <Time ms={one.at_ms} /> },
		{
			id: "key",
			title: "Key",
			track: "minmax(70px, 1fr)",
			from: "m",
			cell: (one) => <span class="mono">{one.key ?? <span class="zero">–</span>}</span>,
		},
		{
			id: "group",
			title: "Group",
			track: "minmax(70px, 1fr)",
			from: "m",
			cell: (one) => (one.group ? <GroupLink topic={topic} group={one.group} /> : <span class="zero">–</span>),
		},
		{
			id: "state",
			title: "State",
			track: "100px",
			cell: (one) => (one.state ? <State state={one.state} /> : <span class="zero">–</span>),
		},
		{ id: "attempts", title: "Attempts", track: "70px", end: true, from: "m", cell: (one) => <N n={one.attempts} /> },
		{
			id: "member",
			title: "Member",
			track: "minmax(80px, 1fr)",
			from: "l",
			cell: (one) => one.member ?? <span class="zero">–</span>,
		},
	]
	return (
		<>
			<Table
				label="Messages found"
				columns={columns}
				count={found.length}
				at={(index) => found[index]}
				rowKey={(one) => `${one.message_id} ${one.group}`}
				onOpen={(one) => go(lifeOf(one.message_id))}
				rowHeight={36}
			/>
			{found.length >= MOST && <div class="progress">The first {MOST} are shown: narrow the search to see others.</div>}
		</>
	)
}
