// The life of one message: the picture, where it stands in each group, what it came from and became, and every event.

import { useMemo, useState } from "preact/hooks"
import { get, Problem, path } from "../api/call"
import { useLoad } from "../api/load"
import { may } from "../api/session"
import type { GroupLife, Message, Topic, Trace, TraceEvent } from "../api/types"
import { ContentView, Headers } from "../parts/content"
import { Icon } from "../parts/icon"
import { Empty, Loading, Refused } from "../parts/states"
import { TimelinePicture } from "../parts/timeline"
import { Badge, Facts, GroupLink, Id, Lane, Page, Panel, Time } from "../parts/words"
import { span } from "../show/numbers"
import { Publish } from "./publish"

const UNSETTLED = new Set(["waiting", "in flight", "retrying"])
const LINKS: Record<string, string> = {
	schedule: "Scheduled as",
	origin: "Came from",
	dead_letters: "Dead letter",
	redriven_from: "Redriven from",
	redriven_to: "Redriven to",
	traceparent: "Trace of its publisher",
}
const TRACES = 4_000

const address = (id: string): string => `/v1/traces/${id.split("/").map(encodeURIComponent).join("/")}`

export function Life({ id }: { id: string }) {
	const [on, setOn] = useState<number | null>(null)
	const trace = useLoad<Trace>(id, (signal) => get<Trace>(address(id), {}, signal), TRACES)
	const found = trace.data
	// biome-ignore lint/correctness/useExhaustiveDependencies: now is when it was loaded
	const now = useMemo(() => Date.now(), [found])
	if (found === null) {
		if (trace.error === null) return <Loading />
		const gone = trace.error instanceof Problem && (trace.error.status === 404 || trace.error.status === 400)
		return (
			<Page title={<span class="mono">{id}</span>}>
				<div class="panel">
					{gone ? (
						<Empty title="No such message" icon="trace" command={`trine trace ${id}`}>
							{trace.error instanceof Problem && trace.error.detail}. A message id looks like orders/2/1841, a schedule
							id like orders@494221-17.
						</Empty>
					) : (
						<Refused error={trace.error} again={trace.again} />
					)}
				</div>
			</Page>
		)
	}
	const groups = Object.entries(found.groups)
	const links = Object.entries(found.links).filter(([, ids]) => ids.length > 0)
	const topic = (found.message_id ?? id).split(/[/@]/)[0] ?? ""
	return (
		<Page
			title={<span class="mono">{found.message_id ?? found.schedule_id ?? id}</span>}
			under={
				<>
					{found.key === null ? "Without a key" : <>Key {found.key}</>}
					{found.published_ms !== null && (
						<>
							; published <Time ms={found.published_ms} millis />
						</>
					)}
					{!found.kept && "; the log keeps it no longer"}
				</>
			}
		>
			<div class="stack">
				<Panel title="Its life">
					<TimelinePicture trace={found} now={now} on={on} onEvent={setOn} />
				</Panel>
				{links.length > 0 && (
					<Panel>
						<div class="links">
							{links.map(([word, ids]) => (
								<span key={word}>
									<b>{LINKS[word] ?? word}</b>
									{ids.map((one, index) => (
										<span key={one}>
											{index > 0 && ", "}
											{word === "traceparent" ? <span class="mono">{one}</span> : <Id id={one} />}
										</span>
									))}
								</span>
							))}
						</div>
					</Panel>
				)}
				<div class="two life-two">
					<div class="stack">
						<Panel title="In each group" flush>
							{groups.length === 0 ? (
								<Empty title="No group works on this topic" icon="groups" />
							) : (
								<InGroups topic={topic} groups={groups} />
							)}
						</Panel>
						<Events events={found.events} begin={found.events[0]?.at_ms ?? 0} on={on} onEvent={setOn} topic={topic} />
					</div>
					{found.message_id !== null && found.kept ? (
						<Content id={found.message_id} topic={topic} />
					) : (
						<Panel title="Content">
							<p class="muted">
								{found.message_id === null
									? "It waits in the schedule: look there for its content."
									: "The log has deleted it; an archive may have it."}
							</p>
						</Panel>
					)}
				</div>
			</div>
		</Page>
	)
}

const TONES: Record<string, "ok" | "warn" | "bad" | "info" | "plain"> = {
	acked: "ok",
	"in flight": "info",
	retrying: "warn",
	waiting: "plain",
	rejected: "bad",
	"dead-lettered": "bad",
	expired: "bad",
}

export const State = ({ state }: { state: string }) => <Badge tone={TONES[state] ?? "plain"}>{state}</Badge>

function InGroups({ topic, groups }: { topic: string; groups: [string, GroupLife][] }) {
	return (
		<table class="plain">
			<thead>
				<tr>
					<th>Group</th>
					<th>State</th>
					<th class="end">Attempts</th>
					<th class="end">Latency</th>
					<th>Member</th>
				</tr>
			</thead>
			<tbody>
				{groups.map(([name, life]) => (
					<tr key={name}>
						<td>
							<GroupLink topic={topic} group={name} />
						</td>
						<td title={life.reason ?? ""}>
							<State state={life.state} />
						</td>
						<td class="end">
							{life.attempts}
							{life.deliveries > life.attempts && <span class="zero"> of {life.deliveries}</span>}
						</td>
						<td class="end" title={life.latency_due_ms === null ? "" : `${span(life.latency_due_ms)} after it was due`}>
							{life.latency_ms === null ? (
								<span class="zero">{UNSETTLED.has(life.state) ? "not settled" : "–"}</span>
							) : (
								span(life.latency_ms)
							)}
						</td>
						<td class="cut" title={life.member ?? ""}>
							{life.member ?? <span class="zero">–</span>}
						</td>
					</tr>
				))}
			</tbody>
		</table>
	)
}

interface EventsProps {
	events: TraceEvent[]
	begin: number
	topic: string
	on: number | null
	onEvent: (index: number | null) => void
}

const SHOWN = 100

function Events({ events, begin, topic, on, onEvent }: EventsProps) {
	const [all, setAll] = useState(false)
	const shown = all ? events : events.slice(0, SHOWN)
	return (
		<Panel title="Every event" flush>
			<table class="plain events">
				<thead>
					<tr>
						<th>When</th>
						<th>What</th>
						<th class="wide-only">Detail</th>
					</tr>
				</thead>
				<tbody>
					{shown.map((event, index) => (
						<tr
							key={index}
							class={on === index ? "on" : ""}
							onMouseEnter={() => onEvent(index)}
							onMouseLeave={() => onEvent(null)}
						>
							<td>
								<Time ms={event.at_ms} millis />
								<br />
								<small>
									{event.at_ms === begin
										? "+0 ms"
										: event.at_ms > begin
											? `+${span(event.at_ms - begin)}`
											: span(event.at_ms - begin)}
								</small>
							</td>
							<td class="what">
								<b>{event.what.toLowerCase().replace("_", " ")}</b>{" "}
								{event.attempt !== null && <span class="muted">#{event.attempt}</span>}
								{event.group !== null && (
									<>
										<br />
										<GroupLink topic={topic} group={event.group} />{" "}
										{event.member !== null && <small>{event.member}</small>}
									</>
								)}
								<small class="narrow-only">{event.detail}</small>
							</td>
							<td class="wrap wide-only">{event.detail}</td>
						</tr>
					))}
				</tbody>
			</table>
			{events.length > shown.length && (
				<div class="progress">
					<span class="grow">{events.length - shown.length} more</span>
					<button type="button" class="button small" onClick={() => setAll(true)}>
						Show all
					</button>
				</div>
			)}
		</Panel>
	)
}

function Content({ id, topic }: { id: string; topic: string }) {
	const [resend, setResend] = useState(false)
	const [, partition = "0", offset = "0"] = id.split("/")
	const message = useLoad<Message>(id, (signal) =>
		get<Message>(path`/v1/topics/${topic}/messages/${partition}/${offset}`, { as: "text" }, signal),
	)
	const about = useLoad<Topic>(topic, (signal) => get<Topic>(path`/v1/topics/${topic}`, {}, signal))
	const found = message.data
	return (
		<Panel
			title="Content"
			actions={
				found &&
				may("publish", topic) && (
					<button type="button" class="button" onClick={() => setResend(true)}>
						<Icon name="edit" /> Edit and resend
					</button>
				)
			}
		>
			{found === null ? (
				message.error === null ? (
					<Loading />
				) : (
					<Refused error={message.error} again={message.again} />
				)
			) : (
				<div class="stack">
					<ContentView message={found} name={id} />
					<Facts
						facts={[
							["Priority", <Lane key="l" name={found.priority} />],
							["Deduplication id", found.dedup_id ?? <span class="zero">none</span>],
							["Producer", found.producer ?? <span class="zero">none</span>],
							[
								"Expires",
								found.expires ? <Time key="e" ms={Date.parse(found.expires)} /> : <span class="zero">never</span>,
							],
						]}
					/>
					<div>
						<div class="subtitle">Headers</div>
						<Headers message={found} />
					</div>
				</div>
			)}
			{resend && found && about.data && (
				<Publish
					topic={topic}
					lanes={Object.keys(about.data.lanes)}
					partitions={about.data.partitions.length}
					from={found}
					onClose={() => setResend(false)}
				/>
			)}
		</Panel>
	)
}
