// The messages of a topic: the newest first, from an offset or a time, found by key, header or text, or as they come.
// Where one looks stands in the address.

import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { address, get, path } from "../api/call"
import { may } from "../api/session"
import type { Message, SearchPage, Topic } from "../api/types"
import { Segments, Select } from "../parts/field"
import { Icon } from "../parts/icon"
import { OneMessage, wholeOf } from "../parts/message"
import { Search } from "../parts/search"
import { Empty, Refused } from "../parts/states"
import { type Column, Table } from "../parts/table"
import { failed } from "../parts/toast"
import { Id, Lane, Time } from "../parts/words"
import { amend, place } from "../route"
import { contentOf, keyOf, lineOf, shortened } from "../show/content"
import { bytes, count, plural } from "../show/numbers"
import { fromInput } from "../show/time"
import { Publish } from "./publish"

type Mode = "newest" | "offset" | "time" | "follow"

const MODES: [Mode, string][] = [
	["newest", "Newest"],
	["offset", "From offset"],
	["time", "From time"],
	["follow", "Follow"],
]
const PAGE = 100
const PREVIEW = 400
/** The list is bounded: who wants more looks from a time or an offset. */
const MOST = 5_000
const FOLLOWED = 1_000

const COLUMNS: Column<Message>[] = [
	{
		id: "time",
		title: "Time",
		track: "minmax(92px, 150px)",
		from: "m",
		cell: (one) => <Time ms={one.timestamp_ms} millis />,
	},
	{ id: "clock", title: "Time", track: "60px", only: "s", cell: (one) => <Time ms={one.timestamp_ms} /> },
	{
		id: "id",
		title: "Message",
		track: "minmax(56px, 110px)",
		cell: (one) => <Id id={one.id} text={`${one.partition}/${one.offset}`} />,
	},
	{
		id: "key",
		title: "Key",
		track: "minmax(70px, 150px)",
		from: "m",
		cell: (one) => <span class="mono">{keyOf(one) ?? <span class="zero">–</span>}</span>,
	},
	{
		id: "value",
		title: "Value",
		track: "minmax(80px, 3fr)",
		cell: (one) => (
			<span class={one.base64 === undefined ? "line" : "line bytes"}>
				{lineOf(one) || <span class="zero">no value</span>}
			</span>
		),
	},
	{ id: "lane", title: "Lane", track: "56px", from: "l", cell: (one) => <Lane name={one.priority} /> },
	{ id: "size", title: "Size", track: "64px", end: true, from: "m", cell: (one) => bytes(contentOf(one).size) },
]

/** Beside an open message there is less room. */
const NARROW = COLUMNS.filter((column) => column.id !== "lane" && column.id !== "size" && column.id !== "key")

interface Asked {
	mode: Mode
	text: string
	key: string
	header: string
	partition: string
	from: string
}

function asked(): Asked {
	const { mode = "newest", text = "", key = "", header = "", partition = "", from = "" } = place.value.query
	const known = MODES.some(([name]) => name === mode)
	return { mode: known ? (mode as Mode) : "newest", text, key, header, partition, from }
}

interface Looked {
	messages: Message[]
	scanned: number
	cursor: string | null
	done: boolean
	busy: boolean
	error: unknown
}

const NOTHING: Looked = { messages: [], scanned: 0, cursor: null, done: false, busy: false, error: null }

/** Looks through the log, one bounded call after the other, until there is a page full or nothing more. */
function useLook(topic: string, ask: Asked): Looked & { more: () => void; stop: () => void; again: () => void } {
	const [state, put] = useState<Looked>(NOTHING)
	const latest = useRef(state)
	latest.current = state
	const abort = useRef(new AbortController())
	const key = JSON.stringify([topic, ask])
	const askNow = useRef(ask)
	askNow.current = ask

	const run = useCallback(
		async (begin: Looked) => {
			abort.current.abort()
			abort.current = new AbortController()
			const { signal } = abort.current
			let now: Looked = { ...begin, busy: true, error: null }
			put(now)
			const enough = now.messages.length + PAGE
			try {
				while (!now.done && now.messages.length < Math.min(enough, MOST)) {
					const found = await get<SearchPage>(
						path`/v1/topics/${topic}/search`,
						{ ...query(askNow.current), cursor: now.cursor },
						signal,
					)
					now = {
						...now,
						messages: [...now.messages, ...found.messages],
						scanned: now.scanned + found.scanned,
						cursor: found.cursor,
						done: found.done || found.cursor === null,
					}
					if (signal.aborted) return
					put(now)
				}
				put({ ...now, busy: false })
			} catch (error) {
				if (!signal.aborted) put({ ...now, busy: false, error })
			}
		},
		[topic],
	)

	const again = useCallback(() => void run(NOTHING), [run])
	const more = useCallback(() => {
		const now = latest.current
		if (!now.busy && !now.done && now.error === null && now.messages.length < MOST) void run(now)
	}, [run])
	const stop = useCallback(() => {
		abort.current.abort()
		put((now) => ({ ...now, busy: false }))
	}, [])

	// biome-ignore lint/correctness/useExhaustiveDependencies: key is all that was asked
	useEffect(() => {
		if (ask.mode !== "follow") void run(NOTHING)
		return () => abort.current.abort()
	}, [key, run])
	return { ...state, more, stop, again }
}

function query(ask: Asked): Record<string, string | number | undefined> {
	const { mode, text, key, header, partition, from } = ask
	return {
		as: "text",
		limit: PAGE,
		preview: PREVIEW,
		text,
		key,
		header: header.replace("=", ":"),
		partition,
		direction: mode === "newest" ? "backward" : "forward",
		...(mode === "offset" ? { from_offset: from || "0", partition: partition || "0" } : {}),
		...(mode === "time" ? { from_time: fromInput(from) ?? undefined } : {}),
	}
}

type Stream = "opening" | "open" | "broken"

/** What is published from now on, newest first: from the moment it is "open". */
function useTail(topic: string, on: boolean, partition: string): { messages: Message[]; stream: Stream } {
	const [messages, put] = useState<Message[]>([])
	const [stream, setStream] = useState<Stream>("opening")
	useEffect(() => {
		if (!on) return
		put([])
		setStream("opening")
		let waiting: Message[] = []
		let timer: ReturnType<typeof setTimeout> | undefined
		let frame: ReturnType<typeof setTimeout> | undefined
		let source: EventSource
		const open = () => {
			source = new EventSource(address(path`/v1/topics/${topic}/tail`, { as: "text", partition }))
			source.addEventListener("message", (event) => {
				waiting.unshift(shortened(JSON.parse(event.data) as Message, PREVIEW))
				waiting.length = Math.min(waiting.length, FOLLOWED)
				// Many may come at once: they are drawn a few times a second.
				frame ??= setTimeout(() => {
					const fresh = waiting
					waiting = []
					frame = undefined
					put((now) => [...fresh, ...now].slice(0, FOLLOWED))
				}, 200)
			})
			source.onopen = () => setStream("open")
			source.onerror = () => {
				setStream("broken")
				// The browser tries again by itself, and says where it was, unless it was refused.
				if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, 1_500)
			}
		}
		open()
		return () => {
			source.close()
			clearTimeout(timer)
			clearTimeout(frame)
		}
	}, [topic, on, partition])
	return { messages, stream }
}

const holds = (message: Message, ask: Asked): boolean =>
	(!ask.text || (message.text ?? "").toLowerCase().includes(ask.text.toLowerCase())) &&
	(!ask.key || keyOf(message) === ask.key)

export function Browse({ topic, onPublish }: { topic: Topic; onPublish: () => void }) {
	const ask = asked()
	const look = useLook(topic.name, ask)
	const following = ask.mode === "follow"
	const [frozen, setFrozen] = useState(false)
	const tail = useTail(topic.name, following && !frozen, ask.partition)
	const [one, setOne] = useState<Message | null>(null)
	const [resend, setResend] = useState<Message | null>(null)
	const [detailed, setDetailed] = useState(ask.header !== "")
	const rows = following ? tail.messages.filter((message) => holds(message, ask)) : look.messages
	const filtered = ask.text !== "" || ask.key !== "" || ask.header !== ""
	const { more } = look
	const onView = useCallback(
		(_: number, end: number) => {
			if (!following && !filtered && end >= latestCount.current - 5 && latestCount.current > 0) more()
		},
		[following, filtered, more],
	)
	const latestCount = useRef(0)
	latestCount.current = rows.length
	const close = useCallback(() => setOne(null), [])
	const edit = (message: Message) => wholeOf(message).then(setResend, failed)
	const partitions = topic.partitions
		.slice(0, 1000)
		.map((part) => [String(part.number), `Partition ${part.number}`] as const)
	return (
		<>
			<div class="filters">
				<Segments
					label="Where to read"
					value={ask.mode}
					options={MODES}
					onInput={(mode) => amend({ mode, from: "" })}
				/>
				{ask.mode === "offset" && (
					<input
						class="input"
						type="number"
						min="0"
						aria-label="Offset"
						placeholder="Offset"
						style={{ width: "120px" }}
						value={ask.from}
						onChange={(event) => amend({ from: event.currentTarget.value })}
					/>
				)}
				{ask.mode === "time" && (
					<input
						class="input"
						type="datetime-local"
						step="1"
						aria-label="Time"
						value={ask.from}
						onChange={(event) => amend({ from: event.currentTarget.value })}
					/>
				)}
				<Select
					label="Partition"
					value={ask.partition}
					options={ask.mode === "offset" ? partitions : [["", "All partitions"], ...partitions]}
					onInput={(partition) => amend({ partition })}
				/>
				<Search
					label="Search the values"
					placeholder="Search the values"
					value={ask.text}
					onInput={(text) => amend({ text })}
					waitMs={350}
				/>
				<input
					class="input"
					aria-label="Key"
					placeholder="Key"
					style={{ width: "130px" }}
					value={ask.key}
					onChange={(event) => amend({ key: event.currentTarget.value })}
				/>
				{detailed ? (
					<input
						class="input"
						aria-label="Header"
						placeholder="Header, as name:value"
						style={{ width: "170px" }}
						value={ask.header}
						onChange={(event) => amend({ header: event.currentTarget.value })}
					/>
				) : (
					<button type="button" class="button" onClick={() => setDetailed(true)}>
						Header…
					</button>
				)}
				{following && (
					<button type="button" class="button" onClick={() => setFrozen(!frozen)}>
						<Icon name={frozen ? "play" : "pause"} /> {frozen ? "Go on" : "Hold"}
					</button>
				)}
			</div>
			<div class={one ? "browse with-one" : "browse"}>
				<div class="panel">
					{rows.length > 0 && (
						<Table
							label={`Messages of ${topic.name}`}
							columns={one ? NARROW : COLUMNS}
							count={rows.length}
							at={(index) => rows[index]}
							rowKey={(message) => message.id}
							onView={onView}
							onOpen={setOne}
							open={one?.id ?? null}
							rowHeight={34}
						/>
					)}
					{look.error !== null && !following ? (
						<Refused error={look.error} again={look.again} />
					) : rows.length === 0 ? (
						<Nothing topic={topic} ask={ask} look={look} filtered={filtered} onPublish={onPublish} />
					) : null}
					<div class="progress" role="status">
						{following ? (
							<>
								{tail.stream !== "open" && !frozen ? (
									<span class="spinner" aria-hidden="true" />
								) : (
									<Icon name="tail" size={14} />
								)}
								<span class="grow">
									{frozen
										? "Held: new messages are not shown"
										: tail.stream === "broken"
											? "Connection lost, trying again"
											: tail.stream === "opening"
												? "Connecting: what is published from then on comes by itself"
												: "Following: new messages come by themselves"}
									; {plural(rows.length, "message")} shown{rows.length >= FOLLOWED ? " (the newest)" : ""}
								</span>
							</>
						) : (
							<Progress look={look} filtered={filtered} />
						)}
					</div>
				</div>
				{one && (
					<OneMessage
						message={one}
						onClose={close}
						actions={
							may("publish", topic.name) && (
								<button type="button" class="button" onClick={() => edit(one)}>
									<Icon name="edit" /> Edit and resend
								</button>
							)
						}
					/>
				)}
			</div>
			{resend && (
				<Publish
					topic={topic.name}
					lanes={Object.keys(topic.lanes)}
					partitions={topic.partitions.length}
					from={resend}
					onClose={() => setResend(null)}
				/>
			)}
		</>
	)
}

interface ProgressProps {
	look: ReturnType<typeof useLook>
	filtered: boolean
}

function Progress({ look, filtered }: ProgressProps) {
	const told = `${plural(look.messages.length, "message")} ${filtered ? `found in ${count(look.scanned)} looked at` : "shown"}`
	return (
		<>
			{look.busy && <span class="spinner" aria-hidden="true" />}
			<span class="grow">
				{told}
				{look.done
					? "; that is all"
					: look.messages.length >= MOST
						? "; that is the most this list holds: go on from a time or an offset"
						: ""}
			</span>
			{look.busy ? (
				<button type="button" class="button small" onClick={look.stop}>
					Stop
				</button>
			) : (
				<>
					{!look.done && look.messages.length < MOST && (
						<button type="button" class="button small" onClick={look.more}>
							{filtered ? "Look further" : "More"}
						</button>
					)}
					<button type="button" class="button small" onClick={look.again}>
						<Icon name="replay" size={13} /> Refresh
					</button>
				</>
			)}
		</>
	)
}

interface NothingProps {
	topic: Topic
	ask: Asked
	look: Looked
	filtered: boolean
	onPublish: () => void
}

function Nothing({ topic, ask, look, filtered, onPublish }: NothingProps) {
	if (ask.mode === "follow")
		return (
			<Empty
				title="Waiting for messages"
				icon="tail"
				command={`echo '{"hello": "world"}' | trine produce ${topic.name}`}
			>
				They appear here as they are published.
			</Empty>
		)
	if (look.busy) return <div class="state">Looking…</div>
	if (filtered || ask.mode !== "newest")
		return (
			<Empty title="Nothing found" icon="search">
				{look.done
					? "No message here is like that. Look elsewhere, or ask for less."
					: "Not in what was looked at so far; look further, or narrow it by partition or time."}
			</Empty>
		)
	return (
		<Empty title={`${topic.name} has no messages`} command={`echo '{"hello": "world"}' | trine produce ${topic.name}`}>
			{may("publish", topic.name) ? (
				<button type="button" class="button primary" onClick={onPublish}>
					<Icon name="send" /> Publish the first one
				</button>
			) : (
				"They appear here when somebody publishes."
			)}
		</Empty>
	)
}
