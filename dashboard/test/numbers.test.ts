import { expect, test } from "vitest"
import { bytes, count, percent, plural, rate, short, span } from "../src/show/numbers"

test("counts have separators, and short ones three digits", () => {
	expect(count(1234567)).toBe("1,234,567")
	expect([0, 999, 9_999, 12_345, 1_234_567, 2e9].map(short)).toEqual(["0", "999", "9,999", "12.3k", "1.23M", "2G"])
	expect(short(0.25)).toBe("0.25")
})

test("rates below ten have a decimal", () => {
	expect([0, 0.04, 3.26, 10.4, 52_431].map(rate)).toEqual(["0", "0", "3.3", "10", "52.4k"])
})

test("bytes are in decimal units", () => {
	expect([0, 999, 1_000, 1_048_576, 5e12].map(bytes)).toEqual(["0 B", "999 B", "1 kB", "1.05 MB", "5 TB"])
})

test("spans have their two largest units", () => {
	expect([0, 0.4, 12, 1_500, 65_000, 3_600_000, 93_784_000].map(span)).toEqual([
		"0 ms",
		"<1 ms",
		"12 ms",
		"1.5 s",
		"1m 5s",
		"1h",
		"1d 2h",
	])
	expect(span(-65_000)).toBe("-1m 5s")
})

test("shares and plurals", () => {
	expect([0.004, 0.5, 1].map(percent)).toEqual(["0.4%", "50%", "100%"])
	expect([plural(1, "message"), plural(2_000, "message"), plural(2, "entry", "entries")]).toEqual([
		"1 message",
		"2,000 messages",
		"2 entries",
	])
})
