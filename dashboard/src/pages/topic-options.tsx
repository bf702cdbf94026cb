// Forms of options: create and alter topics and groups. What will change is said before it is done.

import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import { patch, path, post } from "../api/call"
import type { Config, Group, Topic } from "../api/types"
import { Act } from "../parts/dialog"
import { Check, Choice, Segments, Text } from "../parts/field"
import { done } from "../parts/toast"
import { GroupLink, TopicLink } from "../parts/words"
import { go, to } from "../route"
import { changes, type Form, formOf, GROUP_OPTIONS, type Option, TOPIC_OPTIONS } from "../show/options"

interface OptionsProps {
	options: Option[]
	form: Form
	put: (form: Form) => void
	/** Of something new: what is left empty has the default of the server. */
	fresh?: boolean
}

export function Options({ options, form, put, fresh }: OptionsProps) {
	const flags = options.filter((one) => one.kind === "flag")
	return (
		<>
			<div class="fields">
				{options
					.filter((one) => one.kind !== "flag")
					.map((one) => {
						const set = (value: string) => put({ ...form, [one.name]: value })
						const value = String(form[one.name] ?? "")
						if (one.choices)
							return (
								<Choice
									key={one.name}
									label={one.label}
									hint={one.hint}
									value={value}
									options={value === "" ? [["", "default"], ...one.choices] : one.choices}
									onInput={set}
								/>
							)
						const type = one.kind === "count" || one.kind === "bytes" ? "number" : "text"
						return (
							<Text
								key={one.name}
								label={one.label}
								hint={one.hint}
								value={value}
								type={type}
								placeholder={one.optional && !fresh ? "none" : "default"}
								onInput={set}
							/>
						)
					})}
			</div>
			<div class="fields">
				{flags.map((one) => (
					<Check
						key={one.name}
						label={one.label}
						{...(one.hint ? { hint: one.hint } : {})}
						value={form[one.name] === true}
						onInput={(value) => put({ ...form, [one.name]: value })}
					/>
				))}
			</div>
		</>
	)
}

const MAIN = TOPIC_OPTIONS.slice(0, 4)
const MORE = TOPIC_OPTIONS.slice(4)

export function CreateTopic({ onClose }: { onClose: () => void }) {
	const [name, setName] = useState("")
	const [kind, setKind] = useState<"topic" | "queue">("topic")
	const [form, setForm] = useState<Form>({})
	const act = async () => {
		const set = changes(TOPIC_OPTIONS, {}, drop(form))
		const made = await post<Topic>("/v1/topics", { name: name.trim(), kind, ...set })
		done(
			<>
				Created {kind} <TopicLink name={made.name} />
			</>,
		)
		go(to(["topics", made.name]))
	}
	return (
		<Act title="Create a topic" verb={`Create ${kind}`} onClose={onClose} act={act} ready={name.trim() !== ""} wide>
			<div class="fields">
				<Text
					label="Name"
					mono
					value={name}
					onInput={setName}
					placeholder="orders"
					hint="Letters, digits, . _ and -"
					autofocus
				/>
				<div class="field">
					<span>Kind</span>
					<Segments
						label="Kind"
						value={kind}
						options={[
							["topic", "Topic"],
							["queue", "Queue"],
						]}
						onInput={setKind}
					/>
					<small>{kind === "queue" ? "A topic with one group of the same name" : "Any number of groups read it"}</small>
				</div>
			</div>
			<Options options={MAIN} form={form} put={setForm} fresh />
			<details>
				<summary>More options</summary>
				<div class="stack" style={{ paddingTop: "12px" }}>
					<Options options={MORE} form={form} put={setForm} fresh />
				</div>
			</details>
		</Act>
	)
}

/** What was left empty in a form of something new has the server's default, and is not said. */
function drop(form: Form): Form {
	return Object.fromEntries(Object.entries(form).filter(([, value]) => value !== "" && value !== false))
}

interface AlterProps {
	title: string
	at: string
	options: Option[]
	config: Config
	onClose: () => void
	onDone: () => void
}

function Alter({ title, at, options, config, onClose, onDone }: AlterProps) {
	const before = formOf(options, config)
	const [form, setForm] = useState<Form>(before)
	const set = changes(options, before, form)
	const names = Object.keys(set)
	const act = async () => {
		await patch(at, set)
		done("Altered")
		onDone()
	}
	return (
		<Act title={title} verb="Alter" onClose={onClose} act={act} ready={names.length > 0} wide>
			<Options options={options} form={form} put={setForm} />
			<div class="note">
				{names.length === 0 ? "Nothing is changed yet." : <>Will change: {list(options, before, set)}</>}
			</div>
		</Act>
	)
}

function list(options: Option[], before: Form, set: Record<string, unknown>): ComponentChildren {
	return options
		.filter((one) => one.name in set)
		.map((one, index) => (
			<span key={one.name}>
				{index > 0 && ", "}
				<b>{one.label.toLowerCase()}</b> from {String(before[one.name] || "none")} to {String(set[one.name] ?? "none")}
			</span>
		))
}

export function AlterTopic({ topic, onClose, onDone }: { topic: Topic; onClose: () => void; onDone: () => void }) {
	return (
		<Alter
			title={`Alter ${topic.name}`}
			at={path`/v1/topics/${topic.name}`}
			options={TOPIC_OPTIONS}
			config={topic.config}
			onClose={onClose}
			onDone={onDone}
		/>
	)
}

export function AlterGroup({ group, onClose, onDone }: { group: Group; onClose: () => void; onDone: () => void }) {
	const options = GROUP_OPTIONS.filter((one) => !one.first)
	return (
		<Alter
			title={`Alter ${group.name}`}
			at={path`/v1/topics/${group.topic}/groups/${group.name}`}
			options={options}
			config={group.config}
			onClose={onClose}
			onDone={onDone}
		/>
	)
}

export function CreateGroup({ topic, onClose, onDone }: { topic: string; onClose: () => void; onDone: () => void }) {
	const [name, setName] = useState("")
	const [form, setForm] = useState<Form>({})
	const act = async () => {
		const made = await post<Group>(path`/v1/topics/${topic}/groups`, {
			name: name.trim(),
			...changes(GROUP_OPTIONS, {}, drop(form)),
		})
		done(
			<>
				Created group <GroupLink topic={topic} group={made.name} />
			</>,
		)
		onDone()
	}
	return (
		<Act
			title={`Create a group of ${topic}`}
			verb="Create group"
			onClose={onClose}
			act={act}
			ready={name.trim() !== ""}
			wide
		>
			<Text label="Name" mono value={name} onInput={setName} placeholder="billing" />
			<Options options={GROUP_OPTIONS.filter((one) => one.name !== "dead_letters")} form={form} put={setForm} fresh />
		</Act>
	)
}
