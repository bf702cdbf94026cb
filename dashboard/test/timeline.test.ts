import { expect, test } from "vitest"
import type { Trace, TraceEvent } from "../src/api/types"
import { DRAWN_MAX, scale, timeline } from "../src/show/timeline"

const event = (
	at_ms: number,
	what: string,
	group: string | null = null,
	attempt: number | null = null,
): TraceEvent => ({
	at: "",
	at_ms,
	what,
	group,
	member: group && "worker-1",
	attempt,
	detail: "",
})

const trace = (events: TraceEvent[], groups: string[] = []): Trace => ({
	message_id: "orders/0/1",
	schedule_id: null,
	key: null,
	published_ms: 0,
	due_ms: null,
	kept: true,
	events,
	groups: Object.fromEntries(groups.map((name) => [name, { state: "acked" }])) as unknown as Trace["groups"],
	links: {},
})

test("each delivery is a bar until it ended, with a wait before the next", () => {
	const line = timeline(
		trace(
			[
				event(0, "PUBLISHED"),
				event(10, "DELIVERED", "billing", 1),
				event(20, "NACKED", "billing", 1),
				event(120, "REDELIVERED", "billing", 2),
				event(125, "ACKED", "billing", 2),
				event(9_999_999, "RETAINED"),
			],
			["billing", "audit"],
		),
		1_000,
	)
	expect(line.rows.map((row) => row.group)).toEqual([null, "billing", "audit"])
	const billing = line.rows[1]
	expect(billing?.held.map(({ from, to, attempt, end }) => [from, to, attempt, end])).toEqual([
		[10, 20, 1, "ill"],
		[120, 125, 2, "good"],
	])
	expect(billing?.waits).toEqual([[20, 120]])
	expect(line.times).toEqual([0, 10, 20, 120, 125]) // what lies ahead is not drawn
})

test("what is in flight is held until now", () => {
	const line = timeline(trace([event(0, "PUBLISHED"), event(5, "DELIVERED", "billing", 1)]), 500)
	expect(line.rows[1]?.held).toMatchObject([{ from: 5, to: 500, end: "open" }])
})

test("a lease that ended without a word ends where the next begins", () => {
	const line = timeline(
		trace([event(0, "DELIVERED", "g", 1), event(50, "REDELIVERED", "g", 2), event(60, "DEAD_LETTERED", "g", 2)]),
		99,
	)
	expect(line.rows[1]?.held.map((one) => one.end)).toEqual(["ill", "dead"])
})

test("places keep the order, and long gaps are drawn shorter than they were", () => {
	const place = scale([0, 1, 11, 1_000_011])
	const places = [0, 1, 11, 1_000_011].map(place)
	expect(places[0]).toBe(0)
	expect(places[3]).toBe(1)
	expect([...places].sort((a, b) => a - b)).toEqual(places)
	expect((places[1] ?? 0) - 0).toBeGreaterThan(0.05)
	expect(scale([7])(7)).toBe(0)
})

test("of a message tried ten thousand times, the last are drawn", () => {
	const events = Array.from({ length: 20_000 }, (_, n) => event(n, n % 2 ? "NACKED" : "REDELIVERED", "g", n))
	const line = timeline(trace(events), 20_000)
	expect(line.left).toBe(20_000 - DRAWN_MAX)
	expect(line.rows[1]?.held.length).toBeLessThanOrEqual(DRAWN_MAX)
})
