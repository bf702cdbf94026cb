import { expect, test } from "vitest"
import { hexLine, lineCount } from "../src/show/hex"

test("sixteen bytes a line, what can be printed beside them", () => {
	const bytes = new TextEncoder().encode("<script>alert(1)</script>\u0000")
	expect(lineCount(bytes.length)).toBe(2)
	expect(hexLine(bytes, 0)).toEqual({
		offset: "00000000",
		hex: "3c 73 63 72 69 70 74 3e  61 6c 65 72 74 28 31 29",
		text: "<script>alert(1)",
	})
	const last = hexLine(bytes, 1)
	expect(last.offset).toBe("00000010")
	expect(last.text).toBe("</script>·")
	expect(last.hex).toHaveLength(48)
})

test("nothing has no lines", () => {
	expect(lineCount(0)).toBe(0)
})
