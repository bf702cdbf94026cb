// The schedule: what is due when, as a picture of the coming hours and as a list; and what comes again and again.

import { useCallback, useState } from "preact/hooks"
import { get, path, post, remove } from "../api/call"
import { useLoad } from "../api/load"
import { usePages } from "../api/pages"
import { may } from "../api/session"
import type { Scheduled, Upcoming } from "../api/types"
import { Bars } from "../parts/bars"
import { Beside } from "../parts/beside"
import { ContentView, Headers } from "../parts/content"
import { Act } from "../parts/dialog"
import { Segments, Text } from "../parts/field"
import { Icon } from "../parts/icon"
import { Search } from "../parts/search"
import { Empty, Loading, Refused } from "../parts/states"
import { type Column, Table } from "../parts/table"
import { done, failed } from "../parts/toast"
import { Ago, Facts, Id, Lane, Page, Panel, Time, TopicLink } from "../parts/words"
import { amend, place } from "../route"
import { keyOf, lineOf } from "../show/content"
import { count, plural } from "../show/numbers"
import { brief, clock, fromInput, toInput } from "../show/time"
import { Crons } from "./crons"

const SPANS = [
	["1", "1 hour"],
	["6", "6 hours"],
	["24", "24 hours"],
	["168", "7 days"],
] as const
type Span = (typeof SPANS)[number][0]
const LIMIT = 200
const MOST = 5_000

interface SchedulePage {
	schedules: Scheduled[]
	cursor: string | null
}

export function Schedule() {
	const { hours: asked = "24", topic = "", key = "", from = "", until = "" } = place.value.query
	const hours = (SPANS.some(([one]) => one === asked) ? asked : "24") as Span
	const [one, setOne] = useState<Scheduled | null>(null)
	const [move, setMove] = useState<Scheduled | null>(null)
	const [cancel, setCancel] = useState<Scheduled | null>(null)
	const coming = useLoad<Upcoming>(
		`${topic} ${hours}`,
		(signal) => get<Upcoming>("/v1/schedules/upcoming", { topic, hours, buckets: 96 }, signal),
		5_000,
	)
	const picked: [number, number] | null = from && until ? [Number(from), Number(until)] : null
	const range = picked
		? { from_time: new Date(picked[0]).toISOString(), to_time: new Date(picked[1]).toISOString() }
		: {}
	const ask = { topic, key, ...range, as: "text", preview: 400 }
	const list = usePages<Scheduled>(JSON.stringify(ask), async (cursor, signal) => {
		const found = await get<SchedulePage>("/v1/schedules", { ...ask, limit: LIMIT, cursor }, signal)
		return { rows: found.schedules, cursor: found.cursor }
	})
	const rows = list.rows ?? []
	const reload = useCallback(() => {
		setOne(null)
		list.again()
		coming.again()
	}, [list.again, coming.again])
	const found = coming.data
	return (
		<Page
			title="Schedule"
			under={
				found
					? `${plural(found.total, "message")} ${found.total === 1 ? "waits" : "wait"} for ${found.total === 1 ? "its" : "their"} time`
					: ""
			}
		>
			<div class="stack">
				<Panel
					title="The coming hours"
					actions={
						<Segments
							label="How far"
							value={hours}
							options={SPANS}
							onInput={(next) => amend({ hours: next, from: "", until: "" })}
						/>
					}
				>
					{found === null ? (
						coming.error === null ? (
							<Loading />
						) : (
							<Refused error={coming.error} again={coming.again} />
						)
					) : (
						<>
							<Bars
								label="Messages due in the coming hours"
								buckets={found.buckets}
								colour="--c-scheduled"
								what="due"
								height={120}
								picked={picked}
								palerFrom={found.exact_until_ms}
								onPick={(start, end) =>
									amend(from === String(start) ? { from: "", until: "" } : { from: start, until: end })
								}
							/>
							<small>
								{found.overdue > 0 && <b class="warn">{count(found.overdue)} overdue. </b>}
								{found.later > 0 ? `${count(found.later)} later than that. ` : ""}Choose a bar to see what is due then.
							</small>
						</>
					)}
				</Panel>
				<div>
					<div class="filters">
						<Search label="Topic" placeholder="Topic" value={topic} onInput={(next) => amend({ topic: next })} />
						<input
							class="input"
							aria-label="Key"
							placeholder="Key"
							style={{ width: "150px" }}
							value={key}
							onChange={(event) => amend({ key: event.currentTarget.value })}
						/>
						{picked && (
							<button type="button" class="button" onClick={() => amend({ from: "", until: "" })}>
								{brief(picked[0])} to {clock(picked[1])} <Icon name="close" size={12} />
							</button>
						)}
					</div>
					<div class={one ? "browse with-one" : "browse"}>
						<div class="panel">
							{list.rows === null ? (
								list.error === null ? (
									<Loading />
								) : (
									<Refused error={list.error} again={list.again} />
								)
							) : rows.length === 0 ? (
								<Empty
									title={topic || key || picked ? "Nothing like that waits" : "Nothing waits for its time"}
									icon="schedule"
									command="echo '{}' | trine produce orders --delay 5m"
								>
									A message with a delay or a delivery time waits here until it is due.
								</Empty>
							) : (
								<>
									<Table
										label="Scheduled messages"
										columns={columns(setMove, setCancel).filter((column) => one === null || !BESIDE.has(column.id))}
										count={rows.length}
										at={(index) => rows[index]}
										rowKey={(row) => row.id}
										onOpen={setOne}
										open={one?.id ?? null}
										rowHeight={36}
									/>
									<div class="progress">
										<span class="grow">{plural(rows.length, "message")} shown, the soonest first</span>
										{list.cursor !== null && rows.length < MOST && (
											<button type="button" class="button small" onClick={() => list.further().catch(failed)}>
												More
											</button>
										)}
									</div>
								</>
							)}
						</div>
						{one && (
							<OneScheduled
								one={one}
								onClose={() => setOne(null)}
								onMove={() => setMove(one)}
								onCancel={() => setCancel(one)}
							/>
						)}
					</div>
				</div>
				<Crons />
			</div>
			{move && <Move one={move} onClose={() => setMove(null)} onDone={reload} />}
			{cancel && <Cancel one={cancel} onClose={() => setCancel(null)} onDone={reload} />}
		</Page>
	)
}

/** Beside an open message there is no room for these. */
const BESIDE = new Set(["value", "in", "id"])

function columns(onMove: (one: Scheduled) => void, onCancel: (one: Scheduled) => void): Column<Scheduled>[] {
	return [
		{ id: "due", title: "Due", track: "minmax(84px, 140px)", cell: (one) => <Time ms={one.due_ms} /> },
		{ id: "in", title: "In", track: "minmax(70px, 110px)", from: "m", cell: (one) => <Ago ms={one.due_ms} /> },
		{ id: "topic", title: "Topic", track: "minmax(80px, 1fr)", cell: (one) => <TopicLink name={one.topic} /> },
		{
			id: "key",
			title: "Key",
			track: "minmax(70px, 1fr)",
			from: "m",
			cell: (one) => <span class="mono">{keyOf(one) ?? <span class="zero">–</span>}</span>,
		},
		{
			id: "value",
			title: "Value",
			track: "minmax(90px, 2.4fr)",
			from: "m",
			cell: (one) => <span class="line">{lineOf(one)}</span>,
		},
		{ id: "id", title: "Schedule id", track: "minmax(110px, 1fr)", from: "l", cell: (one) => <Id id={one.id} /> },
		{
			id: "act",
			title: "",
			track: "64px",
			end: true,
			cell: (one) =>
				may("publish", one.topic) && (
					<>
						<button
							type="button"
							class="icon-button"
							title="Give it another time"
							aria-label={`Move ${one.id}`}
							onClick={() => onMove(one)}
						>
							<Icon name="schedule" />
						</button>
						<button
							type="button"
							class="icon-button"
							title="Cancel it"
							aria-label={`Cancel ${one.id}`}
							onClick={() => onCancel(one)}
						>
							<Icon name="close" />
						</button>
					</>
				),
		},
	]
}

function OneScheduled({
	one,
	onClose,
	onMove,
	onCancel,
}: {
	one: Scheduled
	onClose: () => void
	onMove: () => void
	onCancel: () => void
}) {
	const key = keyOf(one)
	return (
		<Beside id={one.id} label={`Scheduled message ${one.id}`} onClose={onClose}>
			{may("publish", one.topic) && (
				<div class="actions">
					<button type="button" class="button" onClick={onMove}>
						<Icon name="schedule" /> Move
					</button>
					<button type="button" class="button quiet-danger" onClick={onCancel}>
						Cancel the message
					</button>
				</div>
			)}
			<ContentView message={one} name={one.id} />
			<Facts
				facts={[
					["Due", <Time key="d" ms={one.due_ms} millis />],
					["Published", <Time key="p" ms={Date.parse(one.published)} millis />],
					["Topic", <TopicLink key="t" name={one.topic} />],
					["Key", key === null ? <span class="zero">none</span> : <span class="mono">{key}</span>],
					["Priority", <Lane key="l" name={one.priority} />],
				]}
			/>
			<div>
				<div class="subtitle">Headers</div>
				<Headers message={one} />
			</div>
		</Beside>
	)
}

function Move({ one, onClose, onDone }: { one: Scheduled; onClose: () => void; onDone: () => void }) {
	const [how, setHow] = useState<"at" | "delay">("at")
	const [at, setAt] = useState(() => toInput(one.due_ms))
	const [delay, setDelay] = useState("1h")
	const instant = fromInput(at)
	const act = async () => {
		await post(path`/v1/schedules/${one.id}/move`, how === "at" ? { deliver_at: instant } : { delay })
		done(
			<>
				Moved <Id id={one.id} />
			</>,
		)
		onDone()
	}
	const told = how === "at" ? (instant === null ? null : brief(Date.parse(instant))) : `${delay} from now`
	return (
		<Act
			title={`Move ${one.id}`}
			verb="Move"
			onClose={onClose}
			act={act}
			ready={told !== null && (how === "at" || delay !== "")}
		>
			<Segments
				label="How"
				value={how}
				options={[
					["at", "To a time"],
					["delay", "From now"],
				]}
				onInput={setHow}
			/>
			{how === "at" ? (
				<Text label="Due at" type="datetime-local" step="1" value={at} onInput={setAt} hint="In your time zone" />
			) : (
				<Text label="Due in" value={delay} onInput={setDelay} hint="30s, 5m, 1h30m" />
			)}
			<div class="note">
				It is due {brief(one.due_ms)} now{told && <>, and will be due {told}</>}. It keeps its id.
			</div>
		</Act>
	)
}

function Cancel({ one, onClose, onDone }: { one: Scheduled; onClose: () => void; onDone: () => void }) {
	const act = async () => {
		await remove(path`/v1/schedules/${one.id}`)
		done(`Cancelled ${one.id}`)
		onDone()
	}
	return (
		<Act title={`Cancel ${one.id}`} verb="Cancel the message" onClose={onClose} act={act} danger>
			<p>
				The message for <b>{one.topic}</b>, due {brief(one.due_ms)}, will never be delivered.
			</p>
			<div class="note warn">This cannot be undone.</div>
		</Act>
	)
}
