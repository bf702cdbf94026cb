import { expect, test } from "vitest"
import type { Message } from "../src/api/types"
import { bodyOf, draftOf, EMPTY, faultOf } from "../src/show/draft"

const message: Message = {
	id: "orders/0/1",
	topic: "orders",
	partition: 0,
	offset: 1,
	timestamp: "2026-01-14T15:00:00.000Z",
	timestamp_ms: 0,
	priority: "high",
	text: '{"id": 12345678901234567890}',
	key: "k",
	headers: { a: "1" },
	headers_base64: { b: "/w==" },
}

test("what is edited and sent again is the same, to the last digit", () => {
	expect(bodyOf(draftOf(message))).toEqual({
		text: '{"id": 12345678901234567890}',
		key: "k",
		headers: { a: "1" },
		headers_base64: { b: "/w==" },
		priority: "high",
	})
})

test("bytes stay bytes, and no value stays none", () => {
	const { text: _, ...rest } = message
	expect(bodyOf(draftOf({ ...rest, base64: "AP8=" }))).toMatchObject({ base64: "AP8=" })
	expect(bodyOf(draftOf({ ...rest, value: null }))).toMatchObject({ value: null })
	expect(draftOf({ ...rest, text: "hello" }).form).toBe("text")
})

test("what cannot be published is said", () => {
	expect(faultOf({ ...EMPTY, content: "{" })).toMatch("not JSON")
	expect(faultOf({ ...EMPTY, form: "base64", content: "%%" })).toMatch("not base64")
	expect(faultOf({ ...EMPTY, form: "text", content: "{" })).toBeNull()
	const twice: [string, string][] = [
		["a", "1"],
		[" a ", "2"],
	]
	expect(faultOf({ ...EMPTY, headers: twice })).toMatch("same name")
})

test("headers without a name are left out", () => {
	expect(bodyOf({ ...EMPTY, form: "text", content: "x", headers: [["", "lost"]] })).toEqual({ text: "x" })
})
