// A message's life as a picture: where each event stands on a line of time, and for how long each member held it.
//
// Waits differ by a factor of a million (a delay of days, an ack after a millisecond), so the line is stretched: a gap is
// as wide as the logarithm of its length. Order is kept, and the true spans are written on.

import type { Trace, TraceEvent } from "../api/types"

export type End = "good" | "ill" | "dead" | "open"

export interface Held {
	from: number
	to: number
	attempt: number | null
	member: string | null
	end: End
	what: string
	event: number
}

export interface Point {
	at: number
	what: string
	kind: "start" | "time" | "good" | "ill" | "dead"
	event: number
}

export interface Row {
	/** null: the log and the schedule. */
	group: string | null
	held: Held[]
	points: Point[]
	waits: [number, number][]
}

export interface Timeline {
	rows: Row[]
	times: number[]
	/** 0 to 1. */
	place: (ms: number) => number
	left: number
}

const BEGINS = new Set(["DELIVERED", "REDELIVERED"])
const ENDS: Record<string, End> = {
	ACKED: "good",
	NACKED: "ill",
	RETURNED: "ill",
	REJECTED: "dead",
	DEAD_LETTERED: "dead",
	EXPIRED: "dead",
}
const AHEAD = new Set(["RETAINED"])
export const DRAWN_MAX = 300

export function timeline(trace: Trace, now: number): Timeline {
	const all = trace.events.map((event, index) => ({ ...event, index })).filter((event) => !AHEAD.has(event.what))
	const drawn = all.slice(-DRAWN_MAX)
	const rows = new Map<string | null, Row>()
	const rowOf = (group: string | null): Row => {
		const found = rows.get(group) ?? { group, held: [], points: [], waits: [] }
		rows.set(group, found)
		return found
	}
	rowOf(null)
	for (const group of Object.keys(trace.groups)) rowOf(group)
	const open = new Map<string, Held>()
	const idle = new Map<string, number>()
	const times = new Set<number>()
	for (const event of drawn) {
		times.add(event.at_ms)
		const row = rowOf(event.group)
		if (event.group === null) {
			row.points.push(point(event, event.index))
			continue
		}
		const holding = open.get(event.group)
		const end = ENDS[event.what]
		if (BEGINS.has(event.what)) {
			if (holding) finish(row, holding, event.at_ms, "ill")
			const since = idle.get(event.group)
			if (since !== undefined && since < event.at_ms) row.waits.push([since, event.at_ms])
			open.set(event.group, {
				from: event.at_ms,
				to: event.at_ms,
				attempt: event.attempt,
				member: event.member,
				end: "open",
				what: event.what,
				event: event.index,
			})
		} else if (end !== undefined) {
			if (holding) finish(row, { ...holding, what: event.what }, event.at_ms, end)
			open.delete(event.group)
			idle.set(event.group, event.at_ms)
			row.points.push(point(event, event.index))
		} else row.points.push(point(event, event.index))
	}
	for (const [group, holding] of open) {
		const row = rowOf(group)
		const to = Math.max(now, holding.from)
		finish(row, holding, to, "open")
		times.add(to)
	}
	const sorted = [...times].sort((a, b) => a - b)
	return { rows: [...rows.values()], times: sorted, place: scale(sorted), left: all.length - drawn.length }
}

function finish(row: Row, held: Held, to: number, end: End): void {
	row.held.push({ ...held, to, end })
}

function point(event: TraceEvent, index: number): Point {
	const end = ENDS[event.what]
	const kind =
		end === undefined || end === "open"
			? TIMED.has(event.what)
				? "time"
				: STARTS.has(event.what)
					? "start"
					: DEAD.has(event.what)
						? "dead"
						: "ill"
			: end
	return { at: event.at_ms, what: event.what, kind, event: index }
}

const TIMED = new Set(["SCHEDULED", "MOVED", "DUE", "EXTENDED"])
const STARTS = new Set(["PUBLISHED", "REDRIVEN", "SEEK", "REOPENED"])
const DEAD = new Set(["CANCELLED", "PURGED", "GONE", "FILTERED"])

/** From times to places: each gap as wide as its logarithm. */
export function scale(times: number[]): (ms: number) => number {
	const places = new Map<number, number>()
	let sum = 0
	times.forEach((at, index) => {
		const before = times[index - 1]
		if (before !== undefined) sum += 1 + Math.log10(1 + (at - before)) * 1.5
		places.set(at, sum)
	})
	return (ms) => (sum === 0 ? 0 : (places.get(ms) ?? sum) / sum)
}
