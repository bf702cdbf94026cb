// Pipelines and archive: what is archived up to where, what ran last on Spark, and what it reported.

import { get, path } from "../api/call"
import { useLoad } from "../api/load"
import type { Archive, Run } from "../api/types"
import { Segments } from "../parts/field"
import { Icon } from "../parts/icon"
import { Empty, Loading, Refused } from "../parts/states"
import { type Column, Table } from "../parts/table"
import { Ago, Badge, Facts, N, Page, Panel, Time, TopicLink } from "../parts/words"
import { amend, go, place, to } from "../route"
import { count, percent, plural, span } from "../show/numbers"
import { ReportView } from "./report"
import { Summary } from "./summary"

const KINDS = [
	["", "All"],
	["archive", "Archive"],
	["replay", "Replay"],
	["pipeline", "Pipelines"],
	["report", "Reports"],
	["redrive", "Redrive"],
	["traces", "Traces"],
] as const
const MOST = 200

export function Pipelines({ run }: { run?: string }) {
	return run ? <OneRun key={run} id={run} /> : <All />
}

const TONES = { running: "info", ended: "ok", failed: "bad", lost: "warn" } as const
const STATES = { running: "running", ended: "ended", failed: "failed", lost: "lost" } as const

const RUNS: Column<Run>[] = [
	{ id: "began", title: "Began", track: "minmax(64px, 130px)", cell: (one) => <Time ms={one.began_ms} /> },
	{ id: "kind", title: "Kind", track: "80px", from: "m", cell: (one) => one.kind },
	{
		id: "name",
		title: "Name",
		track: "minmax(100px, 2fr)",
		cell: (one) => (
			<a class="name" href={to(["pipelines", one.id])}>
				{one.name}
			</a>
		),
	},
	{
		id: "state",
		title: "State",
		track: "80px",
		cell: (one) => <Badge tone={TONES[one.state] ?? "plain"}>{STATES[one.state] ?? one.state}</Badge>,
	},
	{ id: "rows", title: "Rows", track: "minmax(64px, 1fr)", end: true, from: "m", cell: (one) => <N n={one.rows} /> },
	{
		id: "took",
		title: "Took",
		track: "minmax(64px, 1fr)",
		end: true,
		from: "m",
		cell: (one) => (one.seconds === null ? <span class="zero">–</span> : span(one.seconds * 1000)),
	},
	{
		id: "error",
		title: "Error",
		track: "minmax(100px, 2fr)",
		from: "l",
		cell: (one) => (
			<span class="bad" title={one.error ?? ""}>
				{one.error ?? ""}
			</span>
		),
	},
]

function All() {
	const { kind = "" } = place.value.query
	const archives = useLoad<{ archives: Archive[] }>("archive", (signal) => get("/v1/archive", {}, signal), 5_000)
	const runs = useLoad<{ runs: Run[] }>(
		`runs ${kind}`,
		(signal) => get("/v1/runs", { kind, limit: MOST }, signal),
		3_000,
	)
	return (
		<Page title="Pipelines and archive">
			<div class="stack">
				<Panel title="Archive" flush>
					{archives.data === null ? (
						archives.error === null ? (
							<Loading />
						) : (
							<Refused error={archives.error} again={archives.again} />
						)
					) : (
						<Archives all={archives.data.archives} />
					)}
				</Panel>
				<Panel
					title="Runs"
					actions={<Segments label="Kind" value={kind} options={KINDS} onInput={(next) => amend({ kind: next })} />}
					flush
				>
					{runs.data === null ? (
						runs.error === null ? (
							<Loading />
						) : (
							<Refused error={runs.error} again={runs.again} />
						)
					) : runs.data.runs.length === 0 ? (
						<Empty
							title={kind ? `No run of this kind` : "Nothing has run yet"}
							icon="pipelines"
							command={COMMANDS[kind] ?? "trine report orders --out report.html"}
						>
							Archives, replays, reports and pipelines run on Spark, from the command line; the last 1,000 are noted
							here.
						</Empty>
					) : (
						<Table
							label="Runs"
							columns={RUNS}
							count={runs.data.runs.length}
							at={(index) => runs.data?.runs[index]}
							rowKey={(one) => one.id}
							onOpen={(one) => go(to(["pipelines", one.id]))}
							rowHeight={36}
						/>
					)}
				</Panel>
			</div>
		</Page>
	)
}

const COMMANDS: Record<string, string> = {
	archive: "trine archive orders --to ./lake",
	replay: "trine replay orders --key customer-7",
	pipeline: "trine pipeline run orders.yaml --follow",
	report: "trine report orders --out report.html",
	redrive: "trine redrive orders --where \"reason like '%timeout%'\"",
	traces: "trine traces orders --to ./traces",
}

function Archives({ all }: { all: Archive[] }) {
	if (all.length === 0)
		return (
			<Empty title="No topic is archived" icon="pipelines" command="trine archive orders --to ./lake">
				An archive keeps a topic as a Delta table beyond the log's own retention; the log deletes only what is in it.
			</Empty>
		)
	return (
		<table class="plain">
			<thead>
				<tr>
					<th>Topic</th>
					<th class="wide-only">Where</th>
					<th class="end">Archived</th>
					<th class="end">Behind</th>
					<th class="end wide-only">Last</th>
				</tr>
			</thead>
			<tbody>
				{all.map((one) => (
					<tr key={one.topic}>
						<td>
							<TopicLink name={one.topic} />
						</td>
						<td class="cut wide-only mono" title={one.path ?? ""}>
							{one.path ?? <span class="zero">–</span>}
						</td>
						<td class="end">
							<Extent archive={one} />
						</td>
						<td class="end">
							<N n={one.behind} tone="warn" />
						</td>
						<td class="end wide-only">
							{one.last_at_ms !== null ? <Ago ms={one.last_at_ms} /> : <span class="zero">–</span>}
						</td>
					</tr>
				))}
			</tbody>
		</table>
	)
}

/** How much of each partition is archived: a cell each, full when nothing is missing. */
function Extent({ archive }: { archive: Archive }) {
	const shown = archive.partitions.slice(0, 24)
	const next = archive.partitions.reduce((sum, one) => sum + one.next, 0)
	const have = archive.partitions.reduce((sum, one) => sum + one.archived, 0)
	return (
		<span
			class="extents"
			title={archive.partitions
				.map((one) => `${one.partition}: up to ${count(one.archived)} of ${count(one.next)}`)
				.join("\n")}
		>
			<span>{next === 0 ? "–" : percent(Math.min(1, have / next))}</span>
			{shown.map((one) => (
				<i key={one.partition}>
					<b style={{ height: `${one.next === 0 ? 100 : Math.min(100, (one.archived / one.next) * 100)}%` }} />
				</i>
			))}
			{archive.partitions.length > shown.length && <small>+{archive.partitions.length - shown.length}</small>}
		</span>
	)
}

function OneRun({ id }: { id: string }) {
	const run = useLoad<Run>(id, (signal) => get<Run>(path`/v1/runs/${id}`, {}, signal), 2_000)
	const found = run.data
	if (found === null)
		return <div class="panel">{run.error === null ? <Loading /> : <Refused error={run.error} again={run.again} />}</div>
	return (
		<Page
			title={
				<>
					{found.name} <Badge tone={TONES[found.state] ?? "plain"}>{found.state}</Badge>
				</>
			}
			under={
				<a href={to(["pipelines"])}>
					<Icon name="left" size={12} /> All runs
				</a>
			}
		>
			<div class="stack">
				{found.error && <div class="note bad">{found.error}</div>}
				{found.state === "lost" && (
					<div class="note warn">
						Nothing was heard of it any more: its process may have been killed. Running it again goes on where it was.
					</div>
				)}
				<Panel title="Run">
					<Facts
						facts={[
							["Kind", found.kind],
							["Began", <Time key="b" ms={found.began_ms} />],
							["Ended", found.ended_ms !== null ? <Time key="e" ms={found.ended_ms} /> : "–"],
							["Took", found.seconds === null ? "–" : span(found.seconds * 1000)],
							["Rows", found.rows === null ? "–" : plural(found.rows, "row")],
							[
								"Id",
								<span key="i" class="mono">
									{found.id}
								</span>,
							],
						]}
					/>
				</Panel>
				{found.report ? <ReportView report={found.report} /> : <Summary summary={found.summary} />}
			</div>
		</Page>
	)
}
