// Recurring messages: what is published again and again, by a cron expression.

import { useState } from "preact/hooks"
import { get, path, post, remove } from "../api/call"
import { useLoad } from "../api/load"
import { may } from "../api/session"
import type { Cron } from "../api/types"
import { Act } from "../parts/dialog"
import { DraftFields } from "../parts/draft"
import { Text } from "../parts/field"
import { Icon } from "../parts/icon"
import { Empty, Loading, Refused } from "../parts/states"
import { done } from "../parts/toast"
import { Ago, N, Panel, TopicLink } from "../parts/words"
import { bodyOf, type Draft, EMPTY, faultOf } from "../show/draft"

const LANES = ["high", "normal", "low"]

export function Crons() {
	const [making, setMaking] = useState(false)
	const [ending, setEnding] = useState<Cron | null>(null)
	const list = useLoad<{ crons: Cron[] }>("crons", (signal) => get("/v1/crons", {}, signal), 5_000)
	const crons = list.data?.crons
	const make = may("publish") && (
		<button type="button" class="button" onClick={() => setMaking(true)}>
			<Icon name="plus" /> New recurring message
		</button>
	)
	return (
		<Panel title="Again and again" actions={make} flush>
			{crons === undefined ? (
				list.error === null ? (
					<Loading />
				) : (
					<Refused error={list.error} again={list.again} />
				)
			) : crons.length === 0 ? (
				<Empty title="Nothing recurs" icon="replay">
					A recurring message is published by a cron expression such as <code>0 3 * * *</code>, <code>@hourly</code> or{" "}
					<code>every 30s</code>.
				</Empty>
			) : (
				<table class="plain">
					<thead>
						<tr>
							<th>Name</th>
							<th>Topic</th>
							<th>Expression</th>
							<th class="wide-only">Time zone</th>
							<th>Next</th>
							<th class="end">Fired</th>
							<th />
						</tr>
					</thead>
					<tbody>
						{crons.map((one) => (
							<tr key={one.name}>
								<td>
									<b>{one.name}</b>
								</td>
								<td>
									<TopicLink name={one.topic} />
								</td>
								<td class="mono">{one.expression}</td>
								<td class="wide-only">{one.timezone}</td>
								<td>
									<Ago ms={Date.parse(one.next)} />
								</td>
								<td class="end">
									<N n={one.fired} />
								</td>
								<td class="end">
									{may("publish", one.topic) && (
										<button
											type="button"
											class="icon-button"
											title="End it"
											aria-label={`End ${one.name}`}
											onClick={() => setEnding(one)}
										>
											<Icon name="trash" />
										</button>
									)}
								</td>
							</tr>
						))}
					</tbody>
				</table>
			)}
			{making && <Create onClose={() => setMaking(false)} onDone={list.again} />}
			{ending && <End cron={ending} onClose={() => setEnding(null)} onDone={list.again} />}
		</Panel>
	)
}

function Create({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
	const [name, setName] = useState("")
	const [topic, setTopic] = useState("")
	const [expression, setExpression] = useState("@hourly")
	const [timezone, setTimezone] = useState("UTC")
	const [draft, setDraft] = useState<Draft>(EMPTY)
	const act = async () => {
		const made = await post<Cron>("/v1/crons", {
			name: name.trim(),
			topic: topic.trim(),
			expression,
			timezone,
			message: bodyOf(draft),
		})
		done(`${made.name} is published next at ${made.next}`)
		onDone()
	}
	const ready = name.trim() !== "" && topic.trim() !== "" && expression.trim() !== "" && faultOf(draft) === null
	return (
		<Act title="New recurring message" verb="Create" onClose={onClose} act={act} ready={ready} wide>
			<div class="fields">
				<Text label="Name" mono value={name} onInput={setName} placeholder="nightly" />
				<Text label="Topic" mono value={topic} onInput={setTopic} placeholder="orders" />
				<Text label="Expression" mono value={expression} onInput={setExpression} hint="0 3 * * *, @hourly, every 30s" />
				<Text label="Time zone" value={timezone} onInput={setTimezone} hint="Europe/Berlin" />
			</div>
			<DraftFields draft={draft} put={setDraft} lanes={LANES} />
		</Act>
	)
}

function End({ cron, onClose, onDone }: { cron: Cron; onClose: () => void; onDone: () => void }) {
	const act = async () => {
		await remove(path`/v1/crons/${cron.name}`)
		done(`${cron.name} is ended`)
		onDone()
	}
	return (
		<Act title={`End ${cron.name}`} verb="End it" onClose={onClose} act={act} danger>
			<p>
				Nothing is published to <b>{cron.topic}</b> by <code>{cron.expression}</code> any more. What it published stays.
			</p>
		</Act>
	)
}
