import { expect, test } from "vitest"
import { changes, formOf, shortSpan, TOPIC_OPTIONS } from "../src/show/options"

const config = {
	partitions: 6,
	retention_ms: 604_800_000,
	retention_bytes: null,
	lanes: ["high", "normal"],
	compact: false,
	durability: "synced",
}

test("a description as a form", () => {
	expect(formOf(TOPIC_OPTIONS, config)).toMatchObject({
		partitions: "6",
		retention: "7d",
		retention_bytes: "",
		lanes: "high, normal",
		compact: false,
	})
})

test("only what was changed is said, in the broker's words", () => {
	const before = formOf(TOPIC_OPTIONS, config)
	expect(changes(TOPIC_OPTIONS, before, before)).toEqual({})
	expect(
		changes(TOPIC_OPTIONS, before, {
			...before,
			partitions: "12",
			retention: "none",
			lanes: "high normal low",
			compact: true,
		}),
	).toEqual({ partitions: 12, retention: null, lanes: ["high", "normal", "low"], compact: true })
})

test("milliseconds in the largest unit that holds them whole", () => {
	expect([0, 1, 90_000, 3_600_000, 172_800_000].map(shortSpan)).toEqual(["0ms", "1ms", "90s", "1h", "2d"])
})
