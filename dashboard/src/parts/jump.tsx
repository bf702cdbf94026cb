// The search that `/` opens: to a topic, a group, a page, or the life of a message by its id.

import { signal } from "@preact/signals"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { get } from "../api/call"
import type { GroupPage, TopicPage } from "../api/types"
import { go, lifeOf, to } from "../route"
import { plural } from "../show/numbers"
import { Icon, type IconName } from "./icon"

const isOpen = signal(false)
export const openJump = (): void => {
	isOpen.value = true
}

interface Hit {
	icon: IconName
	text: string
	told: string
	href: string
}

const PAGES: Hit[] = [
	{ icon: "overview", text: "Overview", told: "page", href: "#/overview" },
	{ icon: "topics", text: "Topics", told: "page", href: "#/topics" },
	{ icon: "groups", text: "Groups", told: "page", href: "#/groups" },
	{ icon: "letters", text: "Dead letters", told: "page", href: "#/dead-letters" },
	{ icon: "schedule", text: "Schedule", told: "page", href: "#/schedule" },
	{ icon: "trace", text: "Trace", told: "page", href: "#/traces" },
	{ icon: "pipelines", text: "Pipelines", told: "page", href: "#/pipelines" },
]
const MESSAGE = /^[\w.-]+(\/\d+\/\d+|@[\w-]+)$/

export function Jump() {
	useEffect(() => {
		const press = (event: KeyboardEvent) => {
			const writing = (event.target as Element | null)?.closest("input, textarea, select, dialog")
			const slash = event.key === "/" && !writing && !event.ctrlKey && !event.metaKey
			if (slash || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
				event.preventDefault()
				const own = slash ? document.querySelector<HTMLInputElement>("main [data-search]") : null
				if (own)
					own.focus() // a page with a search of its own is meant
				else openJump()
			}
		}
		addEventListener("keydown", press)
		return () => removeEventListener("keydown", press)
	}, [])
	return isOpen.value ? <Box /> : null
}

function Box() {
	const box = useRef<HTMLDialogElement>(null)
	const [text, setText] = useState("")
	const [found, setFound] = useState<Hit[]>([])
	const [on, setOn] = useState(0)
	const close = () => {
		isOpen.value = false
	}
	useLayoutEffect(() => box.current?.showModal(), [])
	useEffect(() => {
		const abort = new AbortController()
		const timer = setTimeout(() => look(text.trim(), abort.signal).then(setFound, () => undefined), 120)
		return () => {
			clearTimeout(timer)
			abort.abort()
		}
	}, [text])
	const hits = [...ids(text.trim()), ...found, ...pages(text.trim())].slice(0, 12)
	const at = Math.min(on, Math.max(0, hits.length - 1))
	const open = (hit?: Hit) => {
		if (!hit) return
		close()
		go(hit.href)
	}
	const press = (event: KeyboardEvent) => {
		if (event.key === "ArrowDown") setOn(Math.min(at + 1, hits.length - 1))
		else if (event.key === "ArrowUp") setOn(Math.max(at - 1, 0))
		else if (event.key === "Enter") open(hits[at])
		else return
		event.preventDefault()
	}
	return (
		// biome-ignore lint/a11y/useKeyWithClickEvents: Esc closes it by keyboard
		<dialog
			ref={box}
			class="dialog jump"
			aria-label="Go to"
			onClose={close}
			onClick={(event) => event.target === box.current && close()}
		>
			<label class="jump-field">
				<Icon name="search" />
				<input
					class="bare"
					placeholder="Topic, group, or message id such as orders/2/1841"
					aria-label="Topic, group or message id"
					autocomplete="off"
					spellcheck={false}
					value={text}
					onInput={(event) => {
						setText(event.currentTarget.value)
						setOn(0)
					}}
					onKeyDown={press}
				/>
				<kbd>Esc</kbd>
			</label>
			<ul>
				{hits.map((hit, index) => (
					<li key={hit.href}>
						<a href={hit.href} class={index === at ? "on" : ""} onClick={close} onMouseEnter={() => setOn(index)}>
							<Icon name={hit.icon} />
							<span class="grow cut">{hit.text}</span>
							<small>{hit.told}</small>
						</a>
					</li>
				))}
				{hits.length === 0 && <li class="jump-none">Nothing has that name. A message id looks like orders/2/1841.</li>}
			</ul>
		</dialog>
	)
}

function ids(text: string): Hit[] {
	return MESSAGE.test(text) ? [{ icon: "trace", text, told: "life of the message", href: lifeOf(text) }] : []
}

function pages(text: string): Hit[] {
	return PAGES.filter((one) => one.text.toLowerCase().includes(text.toLowerCase()))
}

async function look(text: string, signal: AbortSignal): Promise<Hit[]> {
	const [topics, groups] = await Promise.all([
		get<TopicPage>("/v1/topic-summaries", { filter: text, limit: 6, sort: text ? "name" : "rate" }, signal),
		text ? get<GroupPage>("/v1/groups", { filter: text, limit: 5 }, signal) : Promise.resolve(null),
	])
	return [
		...topics.topics.map(
			(one): Hit => ({
				icon: "topics",
				text: one.name,
				told: plural(one.messages, "message"),
				href: to(["topics", one.name]),
			}),
		),
		...(groups?.groups ?? []).map(
			(one): Hit => ({
				icon: "groups",
				text: one.group,
				told: `group of ${one.topic}`,
				href: to(["topics", one.topic, "groups", one.group]),
			}),
		),
	]
}
