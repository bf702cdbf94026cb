import { expect, test } from "vitest"
import { ago, brief, clock, fromInput, moment, toInput } from "../src/show/time"

const at = new Date(2026, 0, 14, 15, 4, 5, 67).getTime()

test("an instant in the reader's own time zone", () => {
	expect(clock(at)).toBe("15:04:05")
	expect(moment(at, true)).toBe("2026-01-14 15:04:05.067")
})

test("today is left out", () => {
	expect(brief(at, at + 3_600_000)).toBe("15:04:05")
	expect(brief(at, at + 86_400_000)).toBe("01-14 15:04:05")
	expect(brief(at, at - 31 * 86_400_000)).toBe("2026-01-14 15:04:05")
})

test("how long ago, and how long until", () => {
	expect(ago(at, at + 400)).toBe("now")
	expect(ago(at, at + 61_000)).toBe("1m 1s ago")
	expect(ago(at, at - 7_200_000)).toBe("in 2h")
})

test("what a field for a time holds comes back as the same instant", () => {
	const whole = at - (at % 1000)
	expect(Date.parse(fromInput(toInput(whole)) ?? "")).toBe(whole)
	expect(fromInput("")).toBeNull()
	expect(fromInput("soon")).toBeNull()
})
