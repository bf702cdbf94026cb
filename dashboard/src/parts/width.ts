// How much room there is: s is a phone, m a small window, l a laptop. Tables drop columns by it.

import { signal } from "@preact/signals"

export type Width = "s" | "m" | "l"

const narrow = matchMedia("(max-width: 640px)")
const middle = matchMedia("(max-width: 1080px)")
const now = (): Width => (narrow.matches ? "s" : middle.matches ? "m" : "l")

export const width = signal<Width>(now())

for (const query of [narrow, middle])
	query.addEventListener("change", () => {
		width.value = now()
	})
