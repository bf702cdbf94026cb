// Bytes as lines of sixteen: offset, hexadecimal, and what of it can be printed.

export const LINE_BYTES = 16

export interface HexLine {
	offset: string
	hex: string
	text: string
}

export const lineCount = (size: number): number => Math.ceil(size / LINE_BYTES)

export function hexLine(bytes: Uint8Array, index: number): HexLine {
	const start = index * LINE_BYTES
	const part = bytes.subarray(start, start + LINE_BYTES)
	const pairs = Array.from(part, (one) => one.toString(16).padStart(2, "0"))
	const halves = [pairs.slice(0, 8).join(" "), pairs.slice(8).join(" ")]
	return {
		offset: start.toString(16).padStart(8, "0"),
		hex: halves.join("  ").padEnd(LINE_BYTES * 3),
		text: Array.from(part, (one) => (one >= 0x20 && one < 0x7f ? String.fromCharCode(one) : "·")).join(""),
	}
}
