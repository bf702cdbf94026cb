// How much room there is: s is a phone, m a small window, l a laptop, xl more. Tables drop columns by it.

import { signal } from "@preact/signals"

export type Width = "s" | "m" | "l" | "xl"
export const WIDTHS: Width[] = ["s", "m", "l", "xl"]

const narrow = matchMedia("(max-width: 640px)")
const middle = matchMedia("(max-width: 1080px)")
const laptop = matchMedia("(max-width: 1360px)")
const now = (): Width => (narrow.matches ? "s" : middle.matches ? "m" : laptop.matches ? "l" : "xl")

export const width = signal<Width>(now())

for (const query of [narrow, middle, laptop])
	query.addEventListener("change", () => {
		width.value = now()
	})
