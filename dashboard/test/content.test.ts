import { expect, test } from "vitest"
import { contentOf, Exact, fromBase64, jsonOf, keyOf, lineOf, toBase64 } from "../src/show/content"

test("a message's content is text, bytes or nothing", () => {
	expect(contentOf({ text: "grün" })).toMatchObject({ kind: "text", text: "grün", size: 5, cut: false })
	expect(contentOf({ base64: "AAEC" })).toMatchObject({ kind: "bytes", size: 3 })
	expect(contentOf({ value: null })).toMatchObject({ kind: "none", size: 0 })
	expect(contentOf({ text: "abc", size: 5_000, cut: true })).toMatchObject({ size: 5_000, cut: true })
})

test("numbers that are held exactly are numbers", () => {
	// Those that are not are kept as they were written, where the language tells how that was: Node 20 does not, browsers
	// do, and tests/browser looks there.
	expect(jsonOf('{"n": 1.5, "whole": 42}')).toEqual({ n: 1.5, whole: 42 })
	expect(new Exact("12345678901234567890").source).toBe("12345678901234567890")
})

test("only objects and lists are shown as JSON, unless any is asked for", () => {
	expect(jsonOf("12")).toBeUndefined()
	expect(jsonOf("12", true)).toBe(12)
	expect(jsonOf("{not json")).toBeUndefined()
	expect(jsonOf('[{"a": []}]')).toEqual([{ a: [] }])
})

test("one line for a list: white space folded, controls shown, bytes in hexadecimal", () => {
	expect(lineOf({ text: '{\n\t"a": 1\n}' })).toBe('{ "a": 1 }')
	expect(lineOf({ text: "a\u0000b\u001bc" })).toBe("a␀b␀c")
	expect(lineOf({ base64: "/wAB" })).toBe("ff 00 01")
	expect(lineOf({ text: "x".repeat(1_000_000) })).toHaveLength(240)
})

test("a key that is no text is shown as bytes", () => {
	expect(keyOf({ key: "" })).toBe("")
	expect(keyOf({ key_base64: "/wA=" })).toBe("0xff00")
	expect(keyOf({})).toBeNull()
})

test("base64 there and back, for more bytes than a call takes arguments", () => {
	const bytes = Uint8Array.from({ length: 200_000 }, (_, index) => index % 251)
	expect(fromBase64(toBase64(bytes))).toEqual(bytes)
})
