// The fields of a message that is written by hand: content, key, headers, lane.

import { type Draft, type Form, faultOf } from "../show/draft"
import { Choice, Field, Segments, Text } from "./field"
import { Icon } from "./icon"

const FORMS: [Form, string][] = [
	["json", "JSON"],
	["text", "Text"],
	["base64", "Base64"],
	["none", "No value"],
]

export function DraftFields({ draft, put, lanes }: { draft: Draft; put: (draft: Draft) => void; lanes: string[] }) {
	const fault = faultOf(draft)
	const pair = (index: number, name: string, value: string) =>
		put({ ...draft, headers: draft.headers.map((one, at) => (at === index ? [name, value] : one)) })
	return (
		<>
			<div class="field">
				<span class="between">
					Content{" "}
					<Segments
						label="Form of the content"
						value={draft.form}
						options={FORMS}
						onInput={(form) => put({ ...draft, form })}
					/>
				</span>
				{draft.form === "none" ? (
					<div class="note">No value: in a compacted topic this deletes the key.</div>
				) : (
					<textarea
						class="input"
						rows={9}
						aria-label="Content"
						spellcheck={false}
						value={draft.content}
						onInput={(event) => put({ ...draft, content: event.currentTarget.value })}
					/>
				)}
				{fault !== null && <small class="bad">{fault}</small>}
			</div>
			<div class="fields">
				{draft.keyBase64 === null ? (
					<Text
						label="Key"
						mono
						value={draft.key}
						onInput={(key) => put({ ...draft, key })}
						placeholder="none"
						hint="The same key, the same partition"
					/>
				) : (
					<Field label="Key" hint="Bytes that are no text; kept as they are">
						<input class="input mono" value={draft.keyBase64} readOnly />
					</Field>
				)}
				<Choice
					label="Priority"
					value={draft.priority}
					options={lanes.includes(draft.priority) ? lanes : [draft.priority, ...lanes]}
					onInput={(priority) => put({ ...draft, priority })}
				/>
			</div>
			<div>
				<div class="subtitle between">
					Headers
					<button
						type="button"
						class="button small"
						onClick={() => put({ ...draft, headers: [...draft.headers, ["", ""]] })}
					>
						<Icon name="plus" size={13} /> Add
					</button>
				</div>
				{draft.headers.map(([name, value], index) => (
					<div class="pair" key={index}>
						<input
							class="input mono"
							aria-label={`Name of header ${index + 1}`}
							placeholder="name"
							value={name}
							onInput={(event) => pair(index, event.currentTarget.value, value)}
						/>
						<input
							class="input mono"
							aria-label={`Value of header ${index + 1}`}
							placeholder="value"
							value={value}
							onInput={(event) => pair(index, name, event.currentTarget.value)}
						/>
						<button
							type="button"
							class="icon-button"
							aria-label={`Remove header ${index + 1}`}
							onClick={() => put({ ...draft, headers: draft.headers.filter((_, at) => at !== index) })}
						>
							<Icon name="close" />
						</button>
					</div>
				))}
				{Object.keys(draft.headersBase64).length > 0 && (
					<small>Kept as they are (bytes): {Object.keys(draft.headersBase64).join(", ")}</small>
				)}
			</div>
		</>
	)
}
