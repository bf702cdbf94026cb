// Who looks at the page, and what they may do. Buttons ask here whether to be shown; the broker decides all the same.

import { computed, effect, signal } from "@preact/signals"
import { get, post, refusals, remove } from "./call"
import type { Action, Session } from "./types"

export const session = signal<Session | null>(null)
export const mayLookIn = computed(() => session.value !== null && (!session.value.keys || session.value.authenticated))

export async function openSession(): Promise<void> {
	session.value = await get<Session>("/v1/session")
}

export async function logIn(key: string): Promise<void> {
	session.value = await post<Session>("/v1/session", { key })
}

export async function logOut(): Promise<void> {
	await remove("/v1/session")
	await openSession()
}

/** Asks again when something was refused for want of a key: the key may have been deleted. */
export function watchRefusals(): () => void {
	return effect(() => {
		if (refusals.value > 0) void openSession().catch(() => undefined) // no broker: the banner says so
	})
}

export function may(action: Action, topic?: string): boolean {
	const now = session.value
	if (now === null) return false
	if (!now.keys) return true
	return now.may.includes(action) && (topic === undefined || now.topics.some((glob) => matches(glob, topic)))
}

/** As the broker matches: `*`, `?` and `[…]`; dead letters belong to whoever has their topic. */
export function matches(glob: string, topic: string): boolean {
	const name = topic.endsWith(".dlq") ? topic.slice(0, -4) : topic
	const pattern = glob
		.replace(/[.+^${}()|\\]/g, "\\$&")
		.replace(/\*/g, ".*")
		.replace(/\?/g, ".")
		.replace(/\[!/g, "[^")
	const whole = new RegExp(`^${pattern}$`, "s")
	return whole.test(topic) || whole.test(name)
}
