// One message beside a list: its content, where it is, and what can be done with it.

import type { ComponentChildren } from "preact"
import { useEffect, useState } from "preact/hooks"
import { get, path } from "../api/call"
import type { Message } from "../api/types"
import { lifeOf } from "../route"
import { keyOf } from "../show/content"
import { count } from "../show/numbers"
import { Beside } from "./beside"
import { ContentView, Headers } from "./content"
import { Icon } from "./icon"
import { failed } from "./toast"
import { Facts, Id, Lane, Time } from "./words"

/** The whole of a message of which a list has a part. */
export async function wholeOf<T extends Message>(message: T): Promise<T> {
	if (!message.cut) return message
	const found = await get<Message>(path`/v1/topics/${message.topic}/messages/${message.partition}/${message.offset}`, {
		as: "text",
	})
	return { ...message, ...found, cut: false }
}

interface OneProps {
	message: Message
	onClose: () => void
	actions?: ComponentChildren
	facts?: [string, ComponentChildren][]
	/** How to load what a list cut. */
	load?: (message: Message) => Promise<Message>
}

export function OneMessage({ message, onClose, actions, facts = [], load = wholeOf }: OneProps) {
	const [whole, setWhole] = useState<Message>(message)
	useEffect(() => setWhole(message), [message])
	const key = keyOf(message)
	return (
		<Beside id={message.id} label={`Message ${message.id}`} onClose={onClose}>
			<div class="actions">
				<a class="button" href={lifeOf(message.id)}>
					<Icon name="trace" /> Its life
				</a>
				{actions}
			</div>
			<ContentView message={whole} name={message.id} whole={() => load(message).then(setWhole, failed)} />
			<Facts
				facts={[
					...facts,
					["Key", key === null ? <span class="zero">none</span> : <span class="mono">{key}</span>],
					["Time", <Time key="t" ms={message.timestamp_ms} millis />],
					["Partition", count(message.partition)],
					["Offset", count(message.offset)],
					["Priority", <Lane key="l" name={message.priority} />],
					...more(message),
				]}
			/>
			<div>
				<div class="subtitle">Headers</div>
				<Headers message={message} />
			</div>
		</Beside>
	)
}

function more(message: Message): [string, ComponentChildren][] {
	const found: [string, ComponentChildren][] = []
	if (message.expires) found.push(["Expires", <Time key="e" ms={Date.parse(message.expires)} />])
	if (message.dedup_id)
		found.push([
			"Deduplication id",
			<span key="d" class="mono">
				{message.dedup_id}
			</span>,
		])
	if (message.producer) found.push(["Producer", message.producer])
	if (message.schedule_id) found.push(["Scheduled as", <Id key="s" id={message.schedule_id} />])
	return found
}
