// One group: how far it is behind in each partition, who works, how it was rebalanced; and what steers it.

import { useEffect, useState } from "preact/hooks"
import { get, path, remove } from "../api/call"
import { watch } from "../api/live"
import { useLoad } from "../api/load"
import { may } from "../api/session"
import type { Group, Rebalance, Topic } from "../api/types"
import { Act } from "../parts/dialog"
import { Icon } from "../parts/icon"
import { Empty, Loading, Refused } from "../parts/states"
import { type Column, Table } from "../parts/table"
import { done } from "../parts/toast"
import { Ago, Badge, Facts, Lanes, N, Page, Panel, Time, TopicLink } from "../parts/words"
import { go, to } from "../route"
import { count, plural, short, span } from "../show/numbers"
import { formOf, GROUP_OPTIONS } from "../show/options"
import { Pause, Replay, Resume, Seek } from "./steer"
import { AlterGroup } from "./topic-options"

type Open = "seek" | "replay" | "pause" | "resume" | "alter" | "delete"

export function GroupPage({ topic, group: name }: { topic: string; group: string }) {
	const [open, setOpen] = useState<Open | null>(null)
	useEffect(() => watch([topic]), [topic])
	const at = path`/v1/topics/${topic}/groups/${name}`
	const group = useLoad<Group>(at, (signal) => get<Group>(at, {}, signal), 2_000)
	const about = useLoad<Topic>(topic, (signal) => get<Topic>(path`/v1/topics/${topic}`, {}, signal), 10_000)
	const found = group.data
	if (found === null)
		return group.error === null ? (
			<Loading />
		) : (
			<div class="panel">
				<Refused error={group.error} again={group.again} />
			</div>
		)
	const steer = {
		topic,
		group: name,
		partitions: about.data?.partitions ?? [],
		onClose: () => setOpen(null),
		onDone: group.again,
	}
	const button = (what: Open, text: string, icon: "seek" | "replay" | "pause" | "play" | "edit") => (
		<button type="button" class="button" onClick={() => setOpen(what)}>
			<Icon name={icon} /> {text}
		</button>
	)
	return (
		<Page
			title={
				<>
					{name} {found.paused !== null && <Badge tone="warn">paused</Badge>}
				</>
			}
			under={
				<>
					Group of <TopicLink name={topic} />
				</>
			}
			actions={
				<>
					{may("consume", topic) && (
						<>
							{button("seek", "Seek", "seek")}
							{button("replay", "Replay", "replay")}
						</>
					)}
					{may("admin", topic) && (
						<>
							{found.paused === null ? button("pause", "Pause", "pause") : button("resume", "Resume", "play")}
							{button("alter", "Alter", "edit")}
							<button type="button" class="button quiet-danger" onClick={() => setOpen("delete")}>
								<Icon name="trash" /> Delete
							</button>
						</>
					)}
				</>
			}
		>
			<div class="stack">
				{found.paused !== null && (
					<div class="note warn">
						Paused: {found.paused}. Nothing is delivered until it is resumed; what is in flight can be settled.
					</div>
				)}
				<Panel>
					<Facts
						facts={[
							["Lag", <N key="l" n={found.lag.count} />],
							["Oldest", found.lag.count > 0 ? span(found.lag.age_ms) : "–"],
							["In flight", <N key="f" n={found.lag.in_flight} />],
							["Retrying", <N key="r" n={found.lag.retrying} tone="warn" />],
							["Members", count(found.members.length)],
							["Order", String(found.config.order)],
							["Waiting by lane", found.lag.count > 0 ? <Lanes key="x" lanes={found.lag.lanes} /> : "–"],
						]}
					/>
					{found.lag.count > 0 && (
						<p style={{ marginTop: "10px" }}>
							<a href={to(["traces"], { topic, group: name, state: "unacked", older: "5m" })}>
								What is not settled for more than 5 minutes
							</a>
						</p>
					)}
				</Panel>
				<div class="two">
					<Members group={found} />
					<Rebalances at={at} />
				</div>
				<Parts group={found} topic={about.data} />
				<Panel title="Configuration">
					<Facts
						facts={GROUP_OPTIONS.map((one) => {
							const value = formOf(GROUP_OPTIONS, found.config)[one.name]
							return [one.label, typeof value === "boolean" ? (value ? "yes" : "no") : value || "none"]
						})}
					/>
				</Panel>
			</div>
			{open === "seek" && <Seek {...steer} />}
			{open === "replay" && <Replay {...steer} />}
			{open === "pause" && <Pause {...steer} />}
			{open === "resume" && <Resume {...steer} />}
			{open === "alter" && <AlterGroup group={found} onClose={() => setOpen(null)} onDone={group.again} />}
			{open === "delete" && <Delete group={found} at={at} onClose={() => setOpen(null)} />}
		</Page>
	)
}

function Members({ group }: { group: Group }) {
	return (
		<Panel title={`Members ${group.members.length || ""}`} flush>
			{group.members.length === 0 ? (
				<Empty
					title="Nobody works"
					icon="groups"
					command={`trine consume ${group.topic} --group ${group.name} --follow`}
				>
					Start a consumer of this group.
				</Empty>
			) : (
				<div class="scrolled">
					<table class="plain">
						<thead>
							<tr>
								<th>Member</th>
								<th>Partitions</th>
								<th class="end">In flight</th>
								<th class="end wide-only">Seen</th>
							</tr>
						</thead>
						<tbody>
							{group.members.slice(0, 500).map((one) => (
								<tr key={one.name}>
									<td class="cut" title={one.name}>
										{one.name}
									</td>
									<td>
										<span class="cells" title={one.partitions.join(", ")}>
											{one.partitions.slice(0, 12).map((n) => (
												<span class="cell" key={n}>
													{n}
												</span>
											))}
											{one.partitions.length > 12 && <span class="zero">+{one.partitions.length - 12}</span>}
											{one.partitions.length === 0 && <span class="zero">none</span>}
										</span>
									</td>
									<td class="end">
										<N n={one.in_flight} />
									</td>
									<td class="end wide-only">{one.seen_ms ? <Ago ms={one.seen_ms} /> : <span class="zero">–</span>}</td>
								</tr>
							))}
						</tbody>
					</table>
				</div>
			)}
		</Panel>
	)
}

function Rebalances({ at }: { at: string }) {
	const found = useLoad<{ rebalances: Rebalance[] }>(
		`${at}/rebalances`,
		(signal) => get(`${at}/rebalances`, {}, signal),
		10_000,
	)
	const all = found.data?.rebalances
	return (
		<Panel title="Rebalances" flush>
			{all === undefined ? (
				found.error === null ? (
					<Loading />
				) : (
					<Refused error={found.error} again={found.again} />
				)
			) : all.length === 0 ? (
				<Empty title="Never rebalanced" icon="replay">
					Members that join and leave move partitions; it is noted here.
				</Empty>
			) : (
				<div class="scrolled">
					<table class="plain">
						<thead>
							<tr>
								<th>When</th>
								<th>Why</th>
								<th class="end">Moved</th>
								<th class="end wide-only">Pause</th>
								<th class="end">Members</th>
							</tr>
						</thead>
						<tbody>
							{all.map((one, index) => (
								<tr key={index}>
									<td>
										<Time ms={one.at_ms} />
									</td>
									<td class="cut" title={whyOf(one)}>
										{whyOf(one)}
									</td>
									<td class="end">{plural(one.moved.length, "partition")}</td>
									<td class="end wide-only">
										{one.pause_ms === null ? <span class="muted">moving</span> : span(one.pause_ms)}
									</td>
									<td class="end">{one.members}</td>
								</tr>
							))}
						</tbody>
					</table>
				</div>
			)}
		</Panel>
	)
}

function whyOf(one: Rebalance): string {
	const names = [...one.joined.map((name) => `${name} joined`), ...one.left.map((name) => `${name} left`)]
	return names.length > 0 && !names.some((name) => one.why.includes(name)) ? `${one.why}: ${names.join(", ")}` : one.why
}

interface Part {
	number: number
	lag: number
	age: number | null
	member: string | null
	next: number | null
}

const PARTS: Column<Part>[] = [
	{ id: "n", title: "Partition", track: "62px", cell: (one) => <b>{one.number}</b> },
	{ id: "lag", title: "Lag", track: "minmax(44px, 1fr)", end: true, cell: (one) => <N n={one.lag} /> },
	{
		id: "age",
		title: "Oldest",
		track: "minmax(56px, 1fr)",
		end: true,
		cell: (one) => (one.lag > 0 && one.age !== null ? span(one.age) : <span class="zero">–</span>),
	},
	{
		id: "next",
		title: "End of the log",
		track: "minmax(90px, 1fr)",
		end: true,
		from: "m",
		cell: (one) => (one.next === null ? "" : count(one.next)),
	},
	{
		id: "member",
		title: "Held by",
		track: "minmax(70px, 2fr)",
		cell: (one) => one.member ?? <span class="zero">nobody</span>,
	},
]

function Parts({ group, topic }: { group: Group; topic: Topic | null }) {
	const owners = new Map(group.members.flatMap((one) => one.partitions.map((n): [number, string] => [n, one.name])))
	const rows: Part[] = Object.entries(group.lag.partitions)
		.map(([number, lag]) => ({
			number: Number(number),
			lag,
			age: group.lag.ages_ms?.[number] ?? null,
			member: owners.get(Number(number)) ?? null,
			next: topic?.partitions[Number(number)]?.next_offset ?? null,
		}))
		.sort((a, b) => a.number - b.number)
	const most = Math.max(0, ...rows.map((one) => one.lag))
	return (
		<Panel
			title="Partitions"
			actions={<span class="muted">{most > 0 ? `at most ${short(most)} behind` : "nothing waits"}</span>}
			flush
		>
			<Table
				label={`Partitions of ${group.name}`}
				columns={PARTS}
				count={rows.length}
				at={(index) => rows[index]}
				rowKey={(one) => String(one.number)}
				rowHeight={34}
			/>
		</Panel>
	)
}

function Delete({ group, at, onClose }: { group: Group; at: string; onClose: () => void }) {
	const act = async () => {
		await remove(at)
		done(`Deleted group ${group.name} of ${group.topic}`)
		go(to(["topics", group.topic, "groups"]))
	}
	return (
		<Act title={`Delete group ${group.name}`} verb="Delete group" onClose={onClose} act={act} typed={group.name} danger>
			<p>
				What it has settled is forgotten: {plural(group.lag.count, "message")} it has yet to settle,{" "}
				{count(group.lag.in_flight)} of them in flight with {plural(group.members.length, "member")}. The messages stay
				in <b>{group.topic}</b>; a group of this name begins anew.
			</p>
			<div class="note warn">This cannot be undone.</div>
		</Act>
	)
}
