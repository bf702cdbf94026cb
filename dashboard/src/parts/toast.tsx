// Toasts: what was done, or why not. They go by themselves; errors stay until they are closed.

import { signal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { told } from "../api/call"
import { Icon } from "./icon"

interface Toast {
	id: number
	kind: "done" | "error"
	text: ComponentChildren
}

const STAY_MS = 6_000
const MOST = 5

const toasts = signal<Toast[]>([])
let last = 0

function put(kind: Toast["kind"], text: ComponentChildren): void {
	const id = ++last
	toasts.value = [...toasts.value, { id, kind, text }].slice(-MOST)
	if (kind === "done") setTimeout(() => drop(id), STAY_MS)
}

function drop(id: number): void {
	toasts.value = toasts.value.filter((one) => one.id !== id)
}

export const done = (text: ComponentChildren): void => put("done", text)
export const failed = (error: unknown): void => put("error", told(error))

export function Toasts() {
	return (
		<div class="toasts" role="status" aria-live="polite">
			{toasts.value.map((one) => (
				<div key={one.id} class={`toast ${one.kind}`}>
					<Icon name={one.kind === "done" ? "check" : "warn"} />
					<div class="grow">{one.text}</div>
					<button type="button" class="icon-button" aria-label="Close" onClick={() => drop(one.id)}>
						<Icon name="close" />
					</button>
				</div>
			))}
		</div>
	)
}
