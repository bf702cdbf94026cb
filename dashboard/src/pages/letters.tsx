// Dead letters: what was given up on, by topic and reason and over time; looked at, edited, sent back, purged.

import { useCallback, useState } from "preact/hooks"
import { get, path } from "../api/call"
import { useLoad } from "../api/load"
import { usePages } from "../api/pages"
import { may } from "../api/session"
import type { Letter, LetterSummary, Message } from "../api/types"
import { Bars } from "../parts/bars"
import { Select } from "../parts/field"
import { Icon } from "../parts/icon"
import { OneMessage } from "../parts/message"
import { Search } from "../parts/search"
import { Empty, Loading, Refused } from "../parts/states"
import { type Column, Table } from "../parts/table"
import { failed } from "../parts/toast"
import { Ago, Badge, GroupLink, Id, N, Page, Panel, Time } from "../parts/words"
import { amend, go, place, to } from "../route"
import { keyOf, lineOf } from "../show/content"
import { count, plural } from "../show/numbers"
import { EditLetter, Jobs, PurgeLetters, Redrive, type Which } from "./redrive"

const WINDOWS = [
	["1h", "1 hour"],
	["6h", "6 hours"],
	["24h", "24 hours"],
	["7d", "7 days"],
] as const
type Window = (typeof WINDOWS)[number][0]
const PAGE = 200
const MOST = 5_000

export function Letters({ topic }: { topic?: string }) {
	const { window: asked = "24h" } = place.value.query
	const window = (WINDOWS.some(([one]) => one === asked) ? asked : "24h") as Window
	const summary = useLoad<LetterSummary>(
		`${topic ?? ""} ${window}`,
		(signal) => get<LetterSummary>("/v1/dead-letters/summary", { window, buckets: 48, topic }, signal),
		5_000,
	)
	const found = summary.data
	return (
		<Page
			title={topic ? `Dead letters of ${topic}` : "Dead letters"}
			under={
				topic ? (
					<a href={to(["dead-letters"])}>All topics</a>
				) : found ? (
					`${plural(found.total, "message")} given up on and not yet redriven or purged`
				) : (
					""
				)
			}
			actions={
				<Select label="Over the last" value={window} options={WINDOWS} onInput={(next) => amend({ window: next })} />
			}
		>
			<div class="stack">
				<Jobs {...(topic ? { topic } : {})} />
				{found === null ? (
					<div class="panel">
						{summary.error === null ? <Loading /> : <Refused error={summary.error} again={summary.again} />}
					</div>
				) : (
					<Panel title="When they were given up">
						<Bars
							label="Dead letters over time"
							buckets={found.counts}
							colour="--c-dead"
							what="dead letters"
							height={90}
						/>
					</Panel>
				)}
				{found && !topic && <Reasons summary={found} />}
				{topic && <Of topic={topic} summary={found} again={summary.again} />}
			</div>
		</Page>
	)
}

type Reason = LetterSummary["by_reason"][number]

const REASONS: Column<Reason>[] = [
	{
		id: "topic",
		title: "Topic",
		track: "minmax(90px, 1.2fr)",
		cell: (one) => (
			<a class="name" href={to(["dead-letters", one.topic])}>
				{one.topic}
			</a>
		),
	},
	{
		id: "reason",
		title: "Reason",
		track: "minmax(120px, 3fr)",
		cell: (one) => <span title={one.reason}>{one.reason}</span>,
	},
	{
		id: "group",
		title: "Group",
		track: "minmax(80px, 1fr)",
		from: "m",
		cell: (one) => <GroupLink topic={one.topic} group={one.group} />,
	},
	{
		id: "count",
		title: "Count",
		track: "minmax(56px, 0.6fr)",
		end: true,
		cell: (one) => <N n={one.count} tone="bad" />,
	},
	{
		id: "last",
		title: "Last",
		track: "minmax(84px, 0.8fr)",
		end: true,
		from: "m",
		cell: (one) => <Ago ms={one.last_at_ms} />,
	},
]

function Reasons({ summary }: { summary: LetterSummary }) {
	const { by_reason: reasons } = summary
	return (
		<Panel title="By topic and reason" flush>
			{reasons.length === 0 ? (
				<Empty title="No dead letters" icon="check" command="trine dlq list orders">
					Nothing was given up on. A message becomes a dead letter when it is rejected, or fails too often.
				</Empty>
			) : (
				<Table
					label="Dead letters by topic and reason"
					columns={REASONS}
					count={reasons.length}
					at={(index) => reasons[index]}
					rowKey={(one) => `${one.topic} ${one.group} ${one.reason}`}
					onOpen={(one) => go(to(["dead-letters", one.topic], { reason: one.reason, group: one.group }))}
				/>
			)}
		</Panel>
	)
}

interface LetterPage {
	dead_letters: Letter[]
	cursor: string | null
}

interface OfProps {
	topic: string
	summary: LetterSummary | null
	again: () => void
}

function Of({ topic, summary, again }: OfProps) {
	const { reason = "", group = "", key = "" } = place.value.query
	const [one, setOne] = useState<Letter | null>(null)
	const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
	const [open, setOpen] = useState<
		{ what: "redrive" | "purge"; which: Which } | { what: "edit"; letter: Letter } | null
	>(null)
	const ask = { reason, group, key, as: "text", preview: 400 }
	const list = usePages<Letter>(JSON.stringify([topic, ask]), async (cursor, signal) => {
		const at = path`/v1/topics/${topic}/dead-letters`
		const found = await get<LetterPage>(at, { ...ask, direction: "backward", limit: PAGE, cursor }, signal)
		return { rows: found.dead_letters, cursor: found.cursor }
	})
	const reload = useCallback(() => {
		setChosen(new Set())
		setOne(null)
		list.again()
		again()
	}, [list.again, again])
	const close = useCallback(() => setOne(null), [])
	const letters = list.rows ?? []
	const able = may("admin", topic)
	const mark = (id: string) => {
		const next = new Set(chosen)
		if (!next.delete(id)) next.add(id)
		setChosen(next)
	}
	const all = letters.length > 0 && letters.every((letter) => chosen.has(letter.id))
	const groups = [...new Set((summary?.by_reason ?? []).map((found) => found.group))]
	const filter: Which = { ids: null, reason, group, key, count: null }
	const some: Which = { ids: [...chosen], reason: "", group: "", key: "", count: chosen.size }
	const whole = async (letter: Letter) => ({ ...letter, ...(await wholeLetter(letter)) })
	return (
		<>
			<div class="filters" style={{ margin: 0 }}>
				<Search
					label="Filter by reason"
					placeholder="Part of the reason"
					value={reason}
					onInput={(next) => amend({ reason: next })}
				/>
				<Select
					label="Group"
					value={group}
					options={[["", "All groups"], ...new Set([...groups, ...(group ? [group] : [])])]}
					onInput={(next) => amend({ group: next })}
				/>
				<input
					class="input"
					aria-label="Key"
					placeholder="Key"
					style={{ width: "140px" }}
					value={key}
					onChange={(event) => amend({ key: event.currentTarget.value })}
				/>
				<span class="grow" />
				{able && letters.length > 0 && (
					<>
						<button type="button" class="button primary" onClick={() => setOpen({ what: "redrive", which: filter })}>
							<Icon name="replay" /> Redrive {reason || group || key ? "these" : "all"}…
						</button>
						<button type="button" class="button quiet-danger" onClick={() => setOpen({ what: "purge", which: filter })}>
							<Icon name="trash" /> Purge {reason || group || key ? "these" : "all"}…
						</button>
					</>
				)}
			</div>
			<div class={one ? "browse with-one" : "browse"}>
				<div class="panel">
					{chosen.size > 0 && (
						<div class="selection">
							<b>{plural(chosen.size, "letter")} chosen</b>
							<span class="grow" />
							<button type="button" class="button small" onClick={() => setOpen({ what: "redrive", which: some })}>
								Redrive…
							</button>
							<button
								type="button"
								class="button small quiet-danger"
								onClick={() => setOpen({ what: "purge", which: some })}
							>
								Purge…
							</button>
							<button type="button" class="button small" onClick={() => setChosen(new Set())}>
								None
							</button>
						</div>
					)}
					{list.rows === null ? (
						list.error === null ? (
							<Loading />
						) : (
							<Refused error={list.error} again={list.again} />
						)
					) : letters.length === 0 ? (
						<Empty
							title={reason || group || key ? "No dead letter is like that" : `No dead letters of ${topic}`}
							icon="check"
							command={`trine dlq list ${topic}`}
						>
							{reason || group || key
								? "Ask for less above."
								: "Nothing was given up on, or all of it was redriven or purged."}
						</Empty>
					) : (
						<>
							<Table
								label={`Dead letters of ${topic}`}
								columns={columns(able, chosen, mark, all, () =>
									setChosen(all ? new Set() : new Set(letters.map((letter) => letter.id))),
								).filter((column) => one === null || !BESIDE.has(column.id))}
								count={letters.length}
								at={(index) => letters[index]}
								rowKey={(letter) => letter.id}
								onOpen={setOne}
								open={one?.id ?? null}
								rowHeight={36}
							/>
							<div class="progress">
								<span class="grow">
									{plural(letters.length, "letter")} shown, the newest first
									{list.cursor === null ? "; that is all" : ""}
								</span>
								{list.cursor !== null && letters.length < MOST && (
									<button type="button" class="button small" onClick={() => list.further().catch(failed)}>
										More
									</button>
								)}
								<button type="button" class="button small" onClick={reload}>
									<Icon name="replay" size={13} /> Refresh
								</button>
							</div>
						</>
					)}
				</div>
				{one && (
					<OneMessage
						message={one}
						onClose={close}
						load={(letter) => whole(letter as Letter)}
						facts={[
							["Reason", one.reason],
							["Came from", <Id key="o" id={one.origin} />],
							["Group", <GroupLink key="g" topic={topic} group={one.group} />],
							["Attempts", count(one.attempts)],
							["Given up", <Time key="f" ms={Date.parse(one.failed)} />],
						]}
						actions={
							able && (
								<>
									<button
										type="button"
										class="button"
										onClick={() => setOpen({ what: "redrive", which: { ...some, ids: [one.id], count: 1 } })}
									>
										<Icon name="replay" /> Redrive
									</button>
									<button
										type="button"
										class="button"
										onClick={() => whole(one).then((letter) => setOpen({ what: "edit", letter }), failed)}
									>
										<Icon name="edit" /> Edit and redrive
									</button>
									<button
										type="button"
										class="button quiet-danger"
										onClick={() => setOpen({ what: "purge", which: { ...some, ids: [one.id], count: 1 } })}
									>
										Purge
									</button>
								</>
							)
						}
					/>
				)}
			</div>
			{open?.what === "redrive" && (
				<Redrive topic={topic} which={open.which} onClose={() => setOpen(null)} onDone={reload} />
			)}
			{open?.what === "purge" && (
				<PurgeLetters topic={topic} which={open.which} onClose={() => setOpen(null)} onDone={reload} />
			)}
			{open?.what === "edit" && (
				<EditLetter topic={topic} letter={open.letter} onClose={() => setOpen(null)} onDone={reload} />
			)}
		</>
	)
}

async function wholeLetter(letter: Message): Promise<Partial<Letter>> {
	if (!letter.cut) return {}
	const topic = letter.topic.replace(/\.dlq$/, "")
	const found = await get<Letter>(path`/v1/topics/${topic}/dead-letters/${letter.partition}/${letter.offset}`, {
		as: "text",
	})
	return { ...found, cut: false }
}

/** Beside an open letter there is no room for these. */
const BESIDE = new Set(["group", "attempts", "value", "key"])

function columns(
	able: boolean,
	chosen: ReadonlySet<string>,
	mark: (id: string) => void,
	all: boolean,
	markAll: () => void,
): Column<Letter>[] {
	const choose: Column<Letter> = {
		id: "choose",
		title: "",
		track: "18px",
		cell: (one) => (
			<input
				type="checkbox"
				aria-label={`Choose ${one.id}`}
				checked={chosen.has(one.id)}
				onChange={() => mark(one.id)}
			/>
		),
		head: <input type="checkbox" aria-label="Choose all shown" checked={all} onChange={markAll} />,
	}
	return [
		...(able ? [choose] : []),
		{ id: "at", title: "Given up", track: "minmax(84px, 140px)", cell: (one) => <Time ms={Date.parse(one.failed)} /> },
		{
			id: "reason",
			title: "Reason",
			track: "minmax(110px, 2fr)",
			cell: (one) => <span title={one.reason}>{one.reason}</span>,
		},
		{ id: "group", title: "Group", track: "minmax(70px, 0.8fr)", from: "l", cell: (one) => one.group },
		{
			id: "attempts",
			title: "Attempts",
			track: "60px",
			end: true,
			from: "m",
			cell: (one) => <Badge>{one.attempts}</Badge>,
		},
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
			track: "minmax(90px, 2fr)",
			from: "m",
			cell: (one) => <span class="line">{lineOf(one)}</span>,
		},
		{ id: "origin", title: "Came from", track: "minmax(90px, 1fr)", cell: (one) => <Id id={one.origin} /> },
	]
}
