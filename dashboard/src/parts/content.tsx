// A message's content in the form that fits: JSON as a tree, text, or bytes in hexadecimal. Always as text nodes: what a
// message has in it is shown and never interpreted.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import type { Message } from "../api/types"
import { type Content, contentOf, jsonOf } from "../show/content"
import { hexLine, LINE_BYTES, lineCount } from "../show/hex"
import { bytes } from "../show/numbers"
import { Segments } from "./field"
import { Icon } from "./icon"
import { JsonTree } from "./json"
import { Copy } from "./states"

type Form = "json" | "text" | "hex"
const TEXT_CHARS = 100_000

interface ViewProps {
	message: Pick<Message, "text" | "base64" | "size" | "cut" | "value">
	name: string
	whole?: () => void
}

export function ContentView({ message, name, whole }: ViewProps) {
	const content = useMemo(() => contentOf(message), [message])
	const json = useMemo(
		() => (content.kind === "text" && !content.cut ? jsonOf(content.text, true) : undefined),
		[content],
	)
	const forms: Form[] =
		content.kind === "bytes" ? ["hex"] : json !== undefined ? ["json", "text", "hex"] : ["text", "hex"]
	const [chosen, setChosen] = useState<Form | null>(null)
	const form = chosen !== null && forms.includes(chosen) ? chosen : (forms[0] ?? "text")
	if (content.kind === "none")
		return <div class="note">This message has no value: in a compacted topic it deletes its key.</div>
	return (
		<div class="content">
			<div class="content-head">
				<Segments
					label="Shown as"
					value={form}
					options={forms.map((one) => [one, one === "json" ? "JSON" : one === "hex" ? "Hex" : "Text"] as const)}
					onInput={setChosen}
				/>
				<span class="grow">{bytes(content.size)}</span>
				{content.kind === "text" && <Copy text={content.text} label="Copy the value" />}
				<button
					type="button"
					class="icon-button"
					title="Save as a file"
					aria-label="Save as a file"
					onClick={() => save(content, name, json !== undefined)}
				>
					<Icon name="download" />
				</button>
			</div>
			{form === "json" && json !== undefined ? (
				<div class="content-body">
					<JsonTree value={json} />
				</div>
			) : form === "hex" ? (
				<Hex bytes={content.bytes()} />
			) : (
				<PlainText text={content.text} />
			)}
			{content.cut && (
				<div class="progress">
					<span class="grow">Only the first part is shown.</span>
					{whole && (
						<button type="button" class="button small" onClick={whole}>
							Load all {bytes(content.size)}
						</button>
					)}
				</div>
			)}
		</div>
	)
}

function PlainText({ text }: { text: string }) {
	const [all, setAll] = useState(false)
	const long = text.length > TEXT_CHARS && !all
	return (
		<>
			<div class="content-body text">{long ? text.slice(0, TEXT_CHARS) : text}</div>
			{long && (
				<div class="progress">
					<span class="grow">The first {bytes(TEXT_CHARS)} are shown.</span>
					<button type="button" class="button small" onClick={() => setAll(true)}>
						Show all
					</button>
				</div>
			)}
		</>
	)
}

const LINE_HEIGHT = 20
const BEYOND = 10

/** Only the lines on view are in the page: a megabyte has 65,536. */
function Hex({ bytes }: { bytes: Uint8Array }) {
	const box = useRef<HTMLDivElement>(null)
	const [[start, end], setView] = useState([0, 40])
	const all = lineCount(bytes.length)
	useLayoutEffect(() => {
		const scroller = box.current
		if (scroller === null) return
		const look = () => {
			const first = Math.max(0, Math.floor(scroller.scrollTop / LINE_HEIGHT) - BEYOND)
			setView([first, first + Math.ceil(scroller.clientHeight / LINE_HEIGHT) + 2 * BEYOND])
		}
		look()
		scroller.addEventListener("scroll", look, { passive: true })
		return () => scroller.removeEventListener("scroll", look)
	}, [])
	const lines = []
	for (let index = start; index < Math.min(end, all); index++) {
		const line = hexLine(bytes, index)
		lines.push(
			<div key={index} style={{ top: `${index * LINE_HEIGHT}px` }}>
				<span class="at">{line.offset}</span> {line.hex} <span class="as">{line.text}</span>
			</div>,
		)
	}
	return (
		<div
			ref={box}
			class="content-body"
			// biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, by keyboard too
			tabIndex={0}
			role="region"
			aria-label={`${bytes.length} bytes in lines of ${LINE_BYTES}`}
		>
			<div class="hex" style={{ height: `${all * LINE_HEIGHT}px`, minWidth: "76ch" }}>
				{lines}
			</div>
		</div>
	)
}

function save(content: Content, name: string, json: boolean): void {
	// Never a type that a browser would run when the file is opened.
	const url = URL.createObjectURL(new Blob([content.bytes()], { type: "application/octet-stream" }))
	const link = document.createElement("a")
	link.href = url
	link.download = `${name.replace(/[^\w.-]+/g, "-")}.${json ? "json" : content.kind === "text" ? "txt" : "bin"}`
	link.click()
	setTimeout(() => URL.revokeObjectURL(url), 10_000)
}

export function Headers({ message }: { message: Pick<Message, "headers" | "headers_base64"> }) {
	const all: [string, string][] = [
		...Object.entries(message.headers ?? {}),
		...Object.entries(message.headers_base64 ?? {}).map(([name, text]): [string, string] => [name, `${text} (base64)`]),
	]
	if (all.length === 0) return <span class="zero">No headers</span>
	return (
		<table class="headers">
			<tbody>
				{all.map(([name, value]) => (
					<tr key={name}>
						<td>{name}</td>
						<td>{value}</td>
					</tr>
				))}
			</tbody>
		</table>
	)
}
