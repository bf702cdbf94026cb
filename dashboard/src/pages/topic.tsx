// One topic: its numbers now, and its messages, partitions, groups and settings.

import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { get, path, post, remove } from "../api/call"
import { live, watch } from "../api/live"
import { type Loaded, useLoad } from "../api/load"
import { may } from "../api/session"
import type { Group, Partition, Topic, TopicNow } from "../api/types"
import { Chart, type Line } from "../parts/chart"
import { Act } from "../parts/dialog"
import { Icon } from "../parts/icon"
import { Empty, Loading, Refused } from "../parts/states"
import { type Column, Table } from "../parts/table"
import { done } from "../parts/toast"
import { Ago, Badge, Facts, GroupLink, Lane, Lanes, N, Page, Panel } from "../parts/words"
import { go, to } from "../route"
import { bytes, count, plural, rate, short, span } from "../show/numbers"
import { formOf, TOPIC_OPTIONS } from "../show/options"
import { Browse } from "./browse"
import { Publish } from "./publish"
import { AlterTopic, CreateGroup } from "./topic-options"

const TABS = ["messages", "partitions", "groups", "settings"] as const
const SAMPLES_MAX = 900
const FLOW: Line[] = [
	{ label: "Published", colour: "--c-published", fill: true, show: (n) => `${rate(n)}/s` },
	{ label: "Settled", colour: "--c-settled", show: (n) => `${rate(n)}/s` },
]
const DEPTH: Line[] = [
	{ label: "Lag", colour: "--c-pending", fill: true },
	{ label: "In flight", colour: "--c-flight" },
]

export function TopicPage({ name, tab }: { name: string; tab: string }) {
	const [open, setOpen] = useState<"publish" | "purge" | "delete" | null>(null)
	useEffect(() => watch([name]), [name])
	const topic = useLoad<Topic>(name, (signal) => get<Topic>(path`/v1/topics/${name}`, {}, signal), 5_000)
	const now = live.value?.topics[name]
	const found = topic.data
	if (found === null)
		return topic.error === null ? (
			<Loading />
		) : (
			<div class="panel">
				<Refused error={topic.error} again={topic.again} />
			</div>
		)
	const close = () => setOpen(null)
	return (
		<Page
			title={
				<>
					{found.name} <Badge>{found.kind}</Badge>
				</>
			}
			under={`${plural(found.partitions.length, "partition")}, ${plural(found.groups.length, "group")}, ${bytes(found.bytes)}`}
			actions={
				<>
					{may("publish", name) && (
						<button type="button" class="button primary" onClick={() => setOpen("publish")}>
							<Icon name="send" /> Publish
						</button>
					)}
					<a class="button" href={to(["dead-letters", name])}>
						<Icon name="letters" /> Dead letters {now && now.dead_letters > 0 ? count(now.dead_letters) : ""}
					</a>
					{may("admin", name) && (
						<>
							<button type="button" class="button" onClick={() => setOpen("purge")}>
								Purge
							</button>
							<button type="button" class="button quiet-danger" onClick={() => setOpen("delete")}>
								<Icon name="trash" /> Delete
							</button>
						</>
					)}
				</>
			}
		>
			<nav class="tabs" aria-label={`Parts of ${name}`}>
				{TABS.map((one) => (
					<a key={one} href={to(["topics", name, one])} aria-current={tab === one ? "page" : undefined}>
						{one[0]?.toUpperCase() + one.slice(1)}
						{one === "partitions" && <span class="zero"> {found.partitions.length}</span>}
						{one === "groups" && <span class="zero"> {found.groups.length}</span>}
					</a>
				))}
			</nav>
			{tab === "partitions" ? (
				<Partitions topic={found} now={now} />
			) : tab === "groups" ? (
				<TopicGroups name={name} />
			) : tab === "settings" ? (
				<Settings topic={found} again={topic.again} />
			) : (
				<>
					<Now topic={found} now={now} />
					<Browse topic={found} onPublish={() => setOpen("publish")} />
				</>
			)}
			{open === "publish" && (
				<Publish topic={name} lanes={Object.keys(found.lanes)} partitions={found.partitions.length} onClose={close} />
			)}
			{open === "purge" && <Purge topic={found} onClose={close} onDone={topic.again} />}
			{open === "delete" && <Delete topic={found} onClose={close} />}
		</Page>
	)
}

function Now({ topic, now }: { topic: Topic; now: TopicNow | undefined }) {
	return (
		<div class="now">
			<Facts
				facts={[
					["In", now ? `${rate(now.published_rate)}/s` : "–"],
					["Settled", now ? `${rate(now.settled_rate)}/s` : "–"],
					["Messages", count(now?.messages ?? topic.messages)],
					["Depth", <N key="d" n={now?.depth ?? topic.depth} />],
					["Lag", now ? <N key="l" n={now.lag} /> : "–"],
					["In flight", now ? <N key="f" n={now.in_flight} /> : "–"],
					["Scheduled", <N key="s" n={now?.scheduled ?? topic.scheduled} />],
					["Lanes", <Lanes key="x" lanes={topic.lanes} />],
				]}
			/>
		</div>
	)
}

/** What came in since the page was opened: the broker remembers minutes only of the totals. */
function useFlow(now: TopicNow | undefined): { flow: (number | null)[][]; depth: (number | null)[][] } {
	const samples = useRef<[number, TopicNow][]>([])
	const at = live.value?.at
	return useMemo(() => {
		if (at !== undefined && now)
			samples.current = [...samples.current, [Date.parse(at) / 1000, now] as [number, TopicNow]].slice(-SAMPLES_MAX)
		const times = samples.current.map(([seconds]) => seconds)
		const of = (word: keyof TopicNow) => samples.current.map(([, one]) => one[word] as number)
		return { flow: [times, of("published_rate"), of("settled_rate")], depth: [times, of("lag"), of("in_flight")] }
	}, [at, now])
}

interface PartitionRow {
	number: number
	first: number
	next: number
	bytes: number
	lastMs: number | null
	lanes: Record<string, number>
	archived: number | null
}

const PARTITIONS: Column<PartitionRow>[] = [
	{ id: "n", title: "Partition", track: "74px", cell: (row) => <b>{row.number}</b> },
	{
		id: "messages",
		title: "Messages",
		track: "minmax(80px, 1fr)",
		end: true,
		cell: (row) => <N n={row.next - row.first} />,
	},
	{
		id: "first",
		title: "First offset",
		track: "minmax(90px, 1fr)",
		end: true,
		from: "m",
		cell: (row) => count(row.first),
	},
	{ id: "next", title: "Next offset", track: "minmax(90px, 1fr)", end: true, cell: (row) => count(row.next) },
	{ id: "size", title: "Size", track: "minmax(70px, 1fr)", end: true, cell: (row) => bytes(row.bytes) },
	{
		id: "last",
		title: "Last message",
		track: "minmax(110px, 1fr)",
		end: true,
		from: "m",
		cell: (row) => (row.lastMs === null ? <span class="zero">–</span> : <Ago ms={row.lastMs} />),
	},
	{
		id: "lanes",
		title: "Waiting by lane",
		track: "minmax(190px, 2fr)",
		from: "l",
		cell: (row) => <LaneCounts lanes={row.lanes} />,
	},
	{
		id: "archived",
		title: "Archived to",
		track: "minmax(90px, 1fr)",
		end: true,
		from: "xl",
		cell: (row) => (row.archived === null ? <span class="zero">–</span> : count(row.archived)),
	},
]

function LaneCounts({ lanes }: { lanes: Record<string, number> }) {
	const some = Object.entries(lanes).filter(([, n]) => n > 0)
	if (some.length === 0) return <span class="zero">nothing waits</span>
	return (
		<>
			{some.map(([name, n]) => (
				<span key={name} style={{ marginRight: "10px" }}>
					<Lane name={name} /> {short(n)}
				</span>
			))}
		</>
	)
}

function Partitions({ topic, now }: { topic: Topic; now: TopicNow | undefined }) {
	const { flow, depth } = useFlow(now)
	const more = useLoad<{ partitions: Topic["partitions"] }>(
		`${topic.name}/partitions`,
		(signal) => get(path`/v1/topics/${topic.name}/partitions`, {}, signal),
		5_000,
	)
	const found = more.data?.partitions ?? topic.partitions
	const rows: PartitionRow[] = found.map((one) => ({
		number: one.number,
		first: one.first_offset,
		next: one.next_offset,
		bytes: one.bytes,
		lastMs: one.last_time_ms ?? null,
		lanes: waiting(one),
		archived: topic.archived[String(one.number)] ?? null,
	}))
	return (
		<>
			<div class="two">
				<Panel title="Messages a second, since this page was opened">
					<Chart label="Published and settled a second" lines={FLOW} data={flow} height={140} />
				</Panel>
				<Panel title="Backlog">
					<Chart label="Lag and in flight" lines={DEPTH} data={depth} height={140} />
				</Panel>
			</div>
			<div class="panel">
				<Table
					label={`Partitions of ${topic.name}`}
					columns={PARTITIONS}
					count={rows.length}
					at={(index) => rows[index]}
					rowKey={(row) => String(row.number)}
					onOpen={(row) => go(to(["topics", topic.name, "messages"], { partition: row.number }))}
				/>
			</div>
		</>
	)
}

/** By lane, for the group that has most to do there. */
function waiting(partition: Partition): Record<string, number> {
	const most: Record<string, number> = {}
	for (const group of Object.values(partition.groups ?? {}))
		for (const [lane, n] of Object.entries(group.lanes)) most[lane] = Math.max(most[lane] ?? 0, n)
	return most
}

function TopicGroups({ name }: { name: string }) {
	const [making, setMaking] = useState(false)
	const groups = useLoad<{ groups: Group[] }>(
		`${name}/groups`,
		(signal) => get(path`/v1/topics/${name}/groups`, {}, signal),
		3_000,
	)
	const make = may("consume", name) && (
		<button type="button" class="button" onClick={() => setMaking(true)}>
			<Icon name="plus" /> Create group
		</button>
	)
	return (
		<>
			<Panel title="Groups" actions={make} flush>
				<GroupsOf groups={groups} name={name} />
			</Panel>
			{making && <CreateGroup topic={name} onClose={() => setMaking(false)} onDone={groups.again} />}
		</>
	)
}

function GroupsOf({ groups, name }: { groups: Loaded<{ groups: Group[] }>; name: string }) {
	if (groups.data === null)
		return groups.error === null ? <Loading /> : <Refused error={groups.error} again={groups.again} />
	if (groups.data.groups.length === 0)
		return (
			<Empty
				title="No group works on this topic"
				icon="groups"
				command={`trine consume ${name} --group billing --follow`}
			>
				A group appears when its first consumer asks for messages.
			</Empty>
		)
	return (
		<table class="plain">
			<thead>
				<tr>
					<th>Group</th>
					<th class="end">Members</th>
					<th class="end">Lag</th>
					<th class="end">Oldest</th>
					<th class="end">In flight</th>
					<th class="end wide-only">Retrying</th>
					<th class="wide-only">Order</th>
				</tr>
			</thead>
			<tbody>
				{groups.data.groups.map((one) => (
					<tr key={one.name}>
						<td>
							<GroupLink topic={name} group={one.name} />{" "}
							{one.paused !== null && (
								<Badge tone="warn" title={one.paused}>
									paused
								</Badge>
							)}
						</td>
						<td class="end">{count(one.members.length)}</td>
						<td class="end">
							<N n={one.lag.count} />
						</td>
						<td class="end">{one.lag.count > 0 ? span(one.lag.age_ms) : <span class="zero">–</span>}</td>
						<td class="end">
							<N n={one.lag.in_flight} />
						</td>
						<td class="end wide-only">
							<N n={one.lag.retrying} />
						</td>
						<td class="wide-only">{String(one.config.order)}</td>
					</tr>
				))}
			</tbody>
		</table>
	)
}

function Settings({ topic, again }: { topic: Topic; again: () => void }) {
	const [open, setOpen] = useState(false)
	const form = formOf(TOPIC_OPTIONS, topic.config)
	return (
		<Panel
			title="Configuration"
			actions={
				may("admin", topic.name) && (
					<button type="button" class="button" onClick={() => setOpen(true)}>
						<Icon name="edit" /> Alter
					</button>
				)
			}
		>
			<Facts facts={TOPIC_OPTIONS.map((one) => [one.label, shown(form[one.name], one.kind === "bytes")])} />
			{open && <AlterTopic topic={topic} onClose={() => setOpen(false)} onDone={again} />}
		</Panel>
	)
}

function shown(value: string | boolean | undefined, size: boolean): string {
	if (typeof value === "boolean") return value ? "yes" : "no"
	if (!value) return "none"
	return size ? bytes(Number(value)) : /^\d+$/.test(value) ? count(Number(value)) : value
}

function Purge({ topic, onClose, onDone }: { topic: Topic; onClose: () => void; onDone: () => void }) {
	const act = async () => {
		const { purged } = await post<{ purged: number }>(path`/v1/topics/${topic.name}/purge`)
		done(`Purged ${plural(purged, "message")} of ${topic.name}`)
		onDone()
	}
	return (
		<Act title={`Purge ${topic.name}`} verb="Purge" onClose={onClose} act={act} typed={topic.name} danger>
			<p>
				All <b>{plural(topic.messages, "message")}</b> ({bytes(topic.bytes)}) of its log are deleted, whether its{" "}
				{plural(topic.groups.length, "group")} settled them or not. Its groups, settings, dead letters, and{" "}
				{plural(topic.scheduled, "scheduled message")} stay.
			</p>
			<div class="note warn">This cannot be undone.</div>
		</Act>
	)
}

function Delete({ topic, onClose }: { topic: Topic; onClose: () => void }) {
	const act = async () => {
		await remove(path`/v1/topics/${topic.name}`)
		done(`Deleted ${topic.name}`)
		go(to(["topics"]))
	}
	return (
		<Act title={`Delete ${topic.name}`} verb="Delete topic" onClose={onClose} act={act} typed={topic.name} danger>
			<p>
				The topic goes, with <b>{plural(topic.messages, "message")}</b>, <b>{plural(topic.groups.length, "group")}</b>
				{topic.groups.length > 0 && ` (${topic.groups.join(", ")})`} and{" "}
				<b>{plural(topic.scheduled, "scheduled message")}</b>. Its dead letters stay.
			</p>
			<div class="note warn">This cannot be undone.</div>
		</Act>
	)
}
