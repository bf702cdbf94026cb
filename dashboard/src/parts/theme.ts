// Light, dark, or as the system has it. Kept in the browser.

import { effect, signal } from "@preact/signals"

export type Theme = "auto" | "light" | "dark"
const NAME = "trine.theme"

function kept(): Theme {
	const found = localStorage.getItem(NAME)
	return found === "light" || found === "dark" ? found : "auto"
}

export const theme = signal<Theme>(kept())
/** Counted up when colours change: charts draw on a canvas and must look them up again. */
export const repaint = signal(0)

export function startTheme(): void {
	effect(() => {
		document.documentElement.dataset.theme = theme.value
		if (theme.value === "auto") localStorage.removeItem(NAME)
		else localStorage.setItem(NAME, theme.value)
		repaint.value = repaint.peek() + 1
	})
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
		repaint.value++
	})
}

/** A colour of the style sheet as a canvas takes it. */
export function colour(name: string): string {
	const probe = document.createElement("span")
	probe.style.color = `var(${name})`
	document.body.append(probe)
	const found = getComputedStyle(probe).color
	probe.remove()
	return found
}
