import { beforeEach, expect, test } from "vitest"
import { matches, may, session } from "../src/api/session"

beforeEach(() => {
	session.value = null
})

test("topics are matched as the broker matches them", () => {
	expect(matches("orders*", "orders-eu")).toBe(true)
	expect(matches("orders*", "xorders")).toBe(false)
	expect(matches("order?", "orders")).toBe(true)
	expect(matches("a.b", "axb")).toBe(false)
	expect(matches("[!o]*", "orders")).toBe(false)
	expect(matches("orders", "orders.dlq")).toBe(true)
})

test("without keys everything is offered, without a session nothing", () => {
	expect(may("admin")).toBe(false)
	session.value = { keys: false, authenticated: false, id: null, role: null, topics: [], may: [] }
	expect(may("admin", "orders")).toBe(true)
})

test("a key is offered what it may, for its topics", () => {
	session.value = {
		keys: true,
		authenticated: true,
		id: "shop",
		role: "producer",
		topics: ["orders*"],
		may: ["read", "publish"],
	}
	expect(may("publish", "orders")).toBe(true)
	expect(may("publish", "payments")).toBe(false)
	expect(may("admin", "orders")).toBe(false)
})
