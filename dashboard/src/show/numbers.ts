// Numbers for people: counts, bytes, rates and spans of time, short and of even width.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"]
const STEPS: [number, string][] = [
	[1e12, "T"],
	[1e9, "G"],
	[1e6, "M"],
	[1e3, "k"],
]

export const count = (n: number): string => whole.format(n)

/** 12,345 → 12.3k: for tiles and axes, where the last digits say nothing. */
export function short(n: number): string {
	const size = Math.abs(n)
	for (const [step, unit] of STEPS) if (size >= step * (step === 1e3 ? 10 : 1)) return `${digits(n / step)}${unit}`
	return Number.isInteger(n) ? whole.format(n) : digits(n)
}

function digits(n: number): string {
	const size = Math.abs(n)
	return size >= 100 ? n.toFixed(0) : size >= 10 ? trim(n.toFixed(1)) : trim(n.toFixed(2))
}

const trim = (text: string): string => (text.includes(".") ? text.replace(/\.?0+$/, "") : text)

export function rate(n: number): string {
	if (n === 0) return "0"
	return n < 10 ? trim(n.toFixed(1)) : short(Math.round(n))
}

export function bytes(n: number): string {
	let size = n
	let unit = 0
	while (Math.abs(size) >= 1000 && unit < UNITS.length - 1) {
		size /= 1000
		unit++
	}
	return `${unit === 0 ? size : digits(size)} ${UNITS[unit]}`
}

export const percent = (share: number): string => `${trim((share * 100).toFixed(share < 0.1 ? 1 : 0))}%`

/** 93_784_000 → "1d 2h": the two largest units. */
export function span(ms: number): string {
	if (ms < 0) return `-${span(-ms)}`
	if (ms < 1) return ms === 0 ? "0 ms" : "<1 ms"
	if (ms < 1_000) return `${Math.round(ms)} ms`
	if (ms < 60_000) return `${trim((ms / 1_000).toFixed(ms < 10_000 ? 2 : 1))} s`
	const units: [number, string][] = [
		[86_400_000, "d"],
		[3_600_000, "h"],
		[60_000, "m"],
		[1_000, "s"],
	]
	const first = units.findIndex(([size]) => ms >= size)
	const shown: string[] = []
	let left = ms
	for (const [size, unit] of units.slice(first, first + 2)) {
		const n = Math.floor(left / size)
		left -= n * size
		if (n > 0) shown.push(`${n}${unit}`)
	}
	return shown.join(" ")
}

export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`
