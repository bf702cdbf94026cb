import { expect, test } from "vitest"
import { address, path } from "../src/api/call"
import { lifeOf, parse, to } from "../src/route"

test("a place is segments and a query, there and back", () => {
	const hash = to(["topics", "a b/c", "messages"], { text: "x&y=z", key: "", partition: 0 })
	expect(hash).toBe("#/topics/a%20b%2Fc/messages?text=x%26y%3Dz&partition=0")
	expect(parse(hash)).toEqual({ segments: ["topics", "a b/c", "messages"], query: { text: "x&y=z", partition: "0" } })
	expect(parse("")).toEqual({ segments: [], query: {} })
	expect(parse("#/topics/50%")).toEqual({ segments: ["topics", "50%"], query: {} })
})

test("the life of a message by either id", () => {
	expect(lifeOf("orders/2/1841")).toBe("#/life/orders/2/1841")
	expect(parse(lifeOf("orders@494221-17")).segments).toEqual(["life", "orders@494221-17"])
})

test("names in a path are encoded, and what is not asked is not said", () => {
	expect(path`/v1/topics/${"a/../b"}/messages/${3}`).toBe("/v1/topics/a%2F..%2Fb/messages/3")
	expect(address("/v1/groups", { filter: "", sort: "lag", limit: 0, more: null, no: undefined })).toBe(
		"/v1/groups?sort=lag&limit=0",
	)
})
