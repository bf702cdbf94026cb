// The overview: one glance says whether all is well, then how fast it goes, what waits, and where.

import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { get } from "../api/call"
import { live, returns, watch } from "../api/live"
import type { GroupNow, Health, History, Live, TopicNow } from "../api/types"
import { Spark } from "../parts/bars"
import { Chart, type Line } from "../parts/chart"
import { Icon } from "../parts/icon"
import { Empty, Loading } from "../parts/states"
import { failed } from "../parts/toast"
import { Badge, Facts, GroupLink, N, Page, Panel, Rate, TopicLink } from "../parts/words"
import { to } from "../route"
import { bytes, count, rate, short, span } from "../show/numbers"

const SAMPLES_MAX = 900
const PUBLISHED = 1
const DELIVERED = 2
const SETTLED = 3
const PENDING = 4
const IN_FLIGHT = 5
const DEAD = 6
const SCHEDULED = 7

const perSecond = (n: number): string => `${rate(n)}/s`
const FLOW: Line[] = [
	{ label: "Published", colour: "--c-published", fill: true, show: perSecond },
	{ label: "Delivered", colour: "--c-delivered", show: perSecond },
	{ label: "Settled", colour: "--c-settled", show: perSecond },
]
const BACKLOG: Line[] = [
	{ label: "Pending", colour: "--c-pending", fill: true },
	{ label: "In flight", colour: "--c-flight" },
]
const FAILED: Line[] = [{ label: "Dead letters", colour: "--c-dead", fill: true }]
const WAITING: Line[] = [{ label: "Scheduled", colour: "--c-scheduled", fill: true }]

/** The last minutes: what the broker remembers, then what comes in. */
function useHistory(): number[][] {
	const samples = useRef<number[][]>([])
	const [, seen] = useState(0)
	const back = returns.value
	// biome-ignore lint/correctness/useExhaustiveDependencies: again when the connection is back
	useEffect(() => {
		const abort = new AbortController()
		get<History>("/v1/history", {}, abort.signal).then(
			(found) => {
				const last = found.samples.at(-1)?.[0] ?? 0
				samples.current = [...found.samples, ...samples.current.filter(([at = 0]) => at > last)].slice(-SAMPLES_MAX)
				seen((n) => n + 1)
			},
			(error) => {
				if (!abort.signal.aborted) failed(error)
			},
		)
		return () => abort.abort()
	}, [back])
	const now = live.value
	const latest = useRef<Live | null>(null)
	if (now !== null && now !== latest.current) {
		latest.current = now
		const { totals } = now
		const at = Date.parse(now.at)
		if (at > (samples.current.at(-1)?.[0] ?? 0))
			samples.current = [
				...samples.current,
				[
					at,
					totals.published_rate,
					totals.delivered_rate,
					totals.settled_rate,
					totals.pending,
					totals.in_flight,
					totals.dead_lettered,
					totals.scheduled,
				],
			].slice(-SAMPLES_MAX)
	}
	return samples.current
}

function columns(samples: number[][], ...fields: number[]): (number | null)[][] {
	return [samples.map(([at = 0]) => at / 1000), ...fields.map((field) => samples.map((one) => one[field] ?? null))]
}

export function Overview() {
	useEffect(() => watch([], true), [])
	const samples = useHistory()
	const now = live.value
	const flow = useMemo(() => columns(samples, PUBLISHED, DELIVERED, SETTLED), [samples])
	const backlog = useMemo(() => columns(samples, PENDING, IN_FLIGHT), [samples])
	const dead = useMemo(() => columns(samples, DEAD), [samples])
	const waiting = useMemo(() => columns(samples, SCHEDULED), [samples])
	if (now === null) return <Loading what="Waiting for the first numbers" />
	return (
		<Page title="Overview">
			<HealthLine health={now.broker.health} />
			<Tiles now={now} samples={samples} />
			<div class="two">
				<Panel title="Messages a second">
					<Chart label="Messages published, delivered and settled a second" lines={FLOW} data={flow} />
				</Panel>
				<Panel title="Backlog">
					<Chart label="Messages pending and in flight" lines={BACKLOG} data={backlog} />
				</Panel>
			</div>
			<div class="two">
				<Busiest topics={now.top} />
				<Behind groups={now.groups ?? []} />
			</div>
			<div class="three">
				<Panel title="Dead letters">
					<Chart label="Dead letters" lines={FAILED} data={dead} height={130} />
				</Panel>
				<Panel title="Scheduled">
					<Chart label="Messages that wait for their time" lines={WAITING} data={waiting} height={130} />
				</Panel>
				<Broker now={now} />
			</div>
		</Page>
	)
}

const ORDER = { bad: 0, warn: 1, ok: 2 }

function HealthLine({ health }: { health: Health[] }) {
	const wrong = health.filter((one) => one.level !== "ok").sort((a, b) => ORDER[a.level] - ORDER[b.level])
	if (wrong.length === 0)
		return (
			<div class="health ok" role="status">
				<Icon name="check" size={18} />
				<b>All is well.</b>
				<span>The broker is ready, nothing is stuck, and nobody is left behind.</span>
			</div>
		)
	const worst = wrong[0]?.level ?? "warn"
	return (
		<div class={`health ${worst}`} role="status">
			<Icon name={worst === "bad" ? "bad" : "warn"} size={18} />
			<div class="grow">
				<b>{wrong.length === 1 ? "One thing needs attention." : `${wrong.length} things need attention.`}</b>
				<ul>
					{wrong.slice(0, 6).map((one) => (
						<li key={one.what}>
							<Badge tone={one.level}>{one.level === "bad" ? "fault" : "warning"}</Badge> {one.what}
							{one.where && <Where where={one.where} />}
						</li>
					))}
					{wrong.length > 6 && <li>and {wrong.length - 6} more</li>}
				</ul>
			</div>
		</div>
	)
}

function Where({ where }: { where: string }) {
	const [topic = "", group] = where.split("/")
	const letters = topic.endsWith(".dlq")
	const href = letters
		? to(["dead-letters", topic.slice(0, -4)])
		: group
			? to(["topics", topic, "groups", group])
			: to(["topics", topic])
	return (
		<a class="where" href={href}>
			Look <Icon name="right" size={12} />
		</a>
	)
}

interface TileProps {
	label: string
	value: string
	told?: string
	colour?: string
	values?: number[]
	href?: string
	tone?: "bad" | "warn" | ""
}

function Tile({ label, value, told, colour, values, href, tone = "" }: TileProps) {
	const inside = (
		<>
			<span class="tile-label">{label}</span>
			<span class={`tile-value ${tone}`}>{value}</span>
			<span class="tile-told">{told}</span>
			{colour && values && <Spark values={values} colour={colour} />}
		</>
	)
	return href ? (
		<a class="tile" href={href}>
			{inside}
		</a>
	) : (
		<div class="tile">{inside}</div>
	)
}

function Tiles({ now, samples }: { now: Live; samples: number[][] }) {
	const { totals } = now
	const some = samples.slice(-120)
	const of = (field: number) => some.map((one) => one[field] ?? 0)
	const worst = (now.groups ?? []).reduce<GroupNow | null>((a, b) => (a === null || b.lag > a.lag ? b : a), null)
	return (
		<div class="tiles">
			<Tile
				label="Published"
				value={perSecond(totals.published_rate)}
				told={`${short(totals.messages)} in the logs`}
				colour="--c-published"
				values={of(PUBLISHED)}
			/>
			<Tile
				label="Delivered"
				value={perSecond(totals.delivered_rate)}
				told={`${perSecond(totals.settled_rate)} settled`}
				colour="--c-delivered"
				values={of(DELIVERED)}
			/>
			<Tile
				label="Pending"
				value={short(totals.pending)}
				told="not delivered yet"
				colour="--c-pending"
				values={of(PENDING)}
				href="#/groups"
			/>
			<Tile
				label="In flight"
				value={short(totals.in_flight)}
				told="leased now"
				colour="--c-flight"
				values={of(IN_FLIGHT)}
				href="#/groups"
			/>
			<Tile label="Acked" value={short(totals.acked)} told="ever" />
			<Tile
				label="Failed"
				value={short(totals.failed)}
				told="deliveries, ever"
				tone={totals.failed > 0 ? "warn" : ""}
			/>
			<Tile
				label="Dead letters"
				value={short(totals.dead_lettered)}
				told="to be looked at"
				colour="--c-dead"
				values={of(DEAD)}
				href="#/dead-letters"
				tone={totals.dead_lettered > 0 ? "bad" : ""}
			/>
			<Tile
				label="Scheduled"
				value={short(totals.scheduled)}
				told="wait for their time"
				colour="--c-scheduled"
				values={of(SCHEDULED)}
				href="#/schedule"
			/>
			<Tile
				label="Lag"
				value={short(totals.lag)}
				told={worst && worst.lag > 0 ? `most: ${worst.group} of ${worst.topic}` : "no group is behind"}
				href="#/groups"
			/>
		</div>
	)
}

function Busiest({ topics }: { topics: TopicNow[] }) {
	return (
		<Panel title="Busiest topics" actions={<a href="#/topics">All topics</a>} flush>
			{topics.length === 0 ? (
				<Empty title="No topics yet" command="trine topic create orders --partitions 3">
					Create the first one on the <a href="#/topics">topics page</a>, or on the command line.
				</Empty>
			) : (
				<table class="plain">
					<thead>
						<tr>
							<th>Topic</th>
							<th class="end">In</th>
							<th class="end">Settled</th>
							<th class="end">Depth</th>
							<th class="end wide-only">In flight</th>
						</tr>
					</thead>
					<tbody>
						{topics.slice(0, 8).map((one) => (
							<tr key={one.name}>
								<td class="cut">
									<TopicLink name={one.name ?? ""} />
								</td>
								<td class="end">
									<Rate n={one.published_rate} />
								</td>
								<td class="end">
									<Rate n={one.settled_rate} />
								</td>
								<td class="end">
									<N n={one.depth} />
								</td>
								<td class="end wide-only">
									<N n={one.in_flight} />
								</td>
							</tr>
						))}
					</tbody>
				</table>
			)}
		</Panel>
	)
}

function Behind({ groups }: { groups: GroupNow[] }) {
	return (
		<Panel title="Lag by group" actions={<a href="#/groups">All groups</a>} flush>
			{groups.length === 0 ? (
				<Empty title="No groups yet" icon="groups" command="trine consume orders --group billing --follow">
					A group appears when its first consumer asks for messages.
				</Empty>
			) : (
				<table class="plain">
					<thead>
						<tr>
							<th>Group</th>
							<th class="wide-only">Topic</th>
							<th class="end">Lag</th>
							<th class="end">Oldest</th>
							<th class="end">Settles</th>
							<th class="end wide-only">Members</th>
						</tr>
					</thead>
					<tbody>
						{groups.slice(0, 8).map((one) => (
							<tr key={`${one.topic}/${one.group}`}>
								<td class="cut">
									<GroupLink topic={one.topic} group={one.group} />{" "}
									{one.paused !== null && (
										<Badge tone="warn" title={one.paused}>
											paused
										</Badge>
									)}
								</td>
								<td class="cut wide-only">
									<TopicLink name={one.topic} />
								</td>
								<td class="end">
									<N n={one.lag} />
								</td>
								<td class="end">{one.lag > 0 ? span(one.lag_age_ms) : <span class="zero">–</span>}</td>
								<td class="end">
									<Rate n={one.settled_rate} />
								</td>
								<td class="end wide-only">
									<N n={one.members} tone={one.members === 0 && one.lag > 0 ? "bad" : "plain"} />
								</td>
							</tr>
						))}
					</tbody>
				</table>
			)}
		</Panel>
	)
}

function Broker({ now }: { now: Live }) {
	const { broker } = now
	const { disk_used_bytes: used, disk_free_bytes: free } = broker
	const share = used !== null && free !== null && used + free > 0 ? used / (used + free) : 0
	return (
		<Panel
			title="Broker"
			actions={<Badge tone={broker.ready ? "ok" : "bad"}>{broker.ready ? "ready" : "not ready"}</Badge>}
		>
			<Facts
				facts={[
					["Processor", `${broker.cpu_percent.toFixed(0)}%`],
					["Memory", bytes(broker.memory_bytes)],
					["Data", bytes(broker.data_bytes)],
					["Disk free", free === null ? "in memory" : bytes(free)],
					["Connections", count(broker.connections)],
				]}
			/>
			<div
				class="meter"
				role="img"
				aria-label={`Disk: ${(share * 100).toFixed(0)}% used`}
				title={`Disk: ${(share * 100).toFixed(0)}% used`}
			>
				<i class={share > 0.95 ? "bad" : share > 0.85 ? "warn" : ""} style={{ width: `${share * 100}%` }} />
			</div>
		</Panel>
	)
}
