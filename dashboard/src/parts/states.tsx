// What is shown when there is nothing to show: loading, empty, refused. Each says what to do next.

import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import { Problem, told } from "../api/call"
import { Icon, type IconName } from "./icon"
import { failed } from "./toast"

export function Loading({ what = "Loading" }: { what?: string }) {
	return (
		<div class="state loading" role="status">
			<span class="spinner" aria-hidden="true" /> {what}…
		</div>
	)
}

interface EmptyProps {
	title: string
	icon?: IconName
	command?: string | undefined
	children?: ComponentChildren
}

export function Empty({ title, icon = "topics", command, children }: EmptyProps) {
	return (
		<div class="state empty">
			<span class="state-icon">
				<Icon name={icon} size={20} />
			</span>
			<h3>{title}</h3>
			{children && <div class="state-text">{children}</div>}
			{command && <Command text={command} />}
		</div>
	)
}

export function Refused({ error, again }: { error: unknown; again?: () => void }) {
	const problem = error instanceof Problem ? error : null
	return (
		<div class="state refused" role="alert">
			<span class="state-icon bad">
				<Icon name="bad" size={20} />
			</span>
			<h3>{title(problem)}</h3>
			<div class="state-text">{told(error)}</div>
			{again && (
				<button type="button" class="button" onClick={again}>
					<Icon name="replay" /> Try again
				</button>
			)}
		</div>
	)
}

function title(problem: Problem | null): string {
	if (problem === null) return "That went wrong"
	if (problem.status === 0) return "The broker does not answer"
	if (problem.status === 403) return "Your key may not see this"
	if (problem.status === 404) return "There is no such thing"
	if (problem.status === 503) return "The broker is not ready"
	return "The broker refused this"
}

export function Command({ text }: { text: string }) {
	return (
		<div class="command">
			<code>{text}</code>
			<Copy text={text} label="Copy the command" />
		</div>
	)
}

export function Copy({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
	const [copied, put] = useState(false)
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(typeof text === "string" ? text : text())
			put(true)
			setTimeout(() => put(false), 1_500)
		} catch (error) {
			failed(error)
		}
	}
	return (
		<button type="button" class="icon-button" title={label} aria-label={label} onClick={copy}>
			<Icon name={copied ? "check" : "copy"} />
		</button>
	)
}
