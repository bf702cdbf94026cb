// The options of topics and groups, as people set them: which there are, in what words, and what an answer of the broker
// (durations in milliseconds) looks like in a form.

export type Kind = "span" | "count" | "bytes" | "flag" | "choice" | "text" | "names"

export interface Option {
	name: string
	label: string
	kind: Kind
	hint?: string
	choices?: string[]
	/** Whether it may be empty: no limit, none. */
	optional?: boolean
	/** Only when it is created. */
	first?: boolean
}

export const TOPIC_OPTIONS: Option[] = [
	{ name: "partitions", label: "Partitions", kind: "count", hint: "Can be added later, not taken away" },
	{ name: "retention", label: "Retention", kind: "span", optional: true, hint: "7d, 12h; none keeps for ever" },
	{
		name: "retention_bytes",
		label: "Retention by size",
		kind: "bytes",
		optional: true,
		hint: "Bytes for each partition, or none",
	},
	{
		name: "durability",
		label: "Durability",
		kind: "choice",
		choices: ["synced", "written", "memory"],
		hint: "What a publish has reached when it is answered",
	},
	{ name: "lanes", label: "Lanes", kind: "names", hint: "Highest first; can be added, not taken away" },
	{
		name: "ttl",
		label: "Time to live",
		kind: "span",
		optional: true,
		hint: "Of messages without one of their own",
	},
	{ name: "depth_max", label: "Greatest depth", kind: "count", hint: "Publishers beyond it are refused" },
	{ name: "message_bytes_max", label: "Largest message", kind: "bytes" },
	{ name: "delay_max", label: "Longest delay", kind: "span" },
	{ name: "dedup_window", label: "Deduplication window", kind: "span" },
	{ name: "compression", label: "Compression", kind: "choice", choices: ["none", "gzip", "snappy", "lz4", "zstd"] },
	{ name: "compact", label: "Compact by key", kind: "flag", hint: "Keep only the newest message of each key" },
	{
		name: "dedup_by_content",
		label: "Deduplicate by content",
		kind: "flag",
		hint: "Equal messages within the window are one",
	},
	{ name: "dead_letter_expired", label: "Expired messages become dead letters", kind: "flag" },
	{
		name: "retention_waits_for_groups",
		label: "Retention waits for groups",
		kind: "flag",
		hint: "What a group has not settled is kept",
	},
	{ name: "retained", label: "Retain the last message of each key", kind: "flag", hint: "New groups get it first" },
]

export const GROUP_OPTIONS: Option[] = [
	{
		name: "order",
		label: "Order",
		kind: "choice",
		choices: ["none", "key", "partition"],
		hint: "none: any free message; key: one of a key at a time",
	},
	{ name: "start", label: "Begins at", kind: "choice", choices: ["earliest", "latest"], first: true },
	{ name: "lease", label: "Lease", kind: "span", hint: "How long a member has a message" },
	{ name: "max_deliveries", label: "Most deliveries", kind: "count", hint: "Then it is a dead letter" },
	{ name: "in_flight_max", label: "Most in flight", kind: "count" },
	{ name: "member_timeout", label: "Member timeout", kind: "span" },
	{ name: "auto_ack", label: "Ack on delivery", kind: "flag", hint: "At most once" },
	{ name: "dead_letters", label: "Dead letters", kind: "flag", hint: "What fails too often is kept there" },
]

export type Form = Record<string, string | boolean>

/** A description's `config` as a form's values. */
export function formOf(options: Option[], config: Record<string, unknown>): Form {
	return Object.fromEntries(options.map((one) => [one.name, shownValue(one, config)]))
}

function shownValue(option: Option, config: Record<string, unknown>): string | boolean {
	const found = option.kind === "span" ? config[`${option.name}_ms`] : config[option.name]
	if (option.kind === "flag") return found === true
	if (found === null || found === undefined) return ""
	if (option.kind === "span") return shortSpan(Number(found))
	return Array.isArray(found) ? found.join(", ") : String(found)
}

/** Milliseconds in the largest unit that holds them whole: 604800000 → 7d. */
export function shortSpan(ms: number): string {
	const units: [number, string][] = [
		[86_400_000, "d"],
		[3_600_000, "h"],
		[60_000, "m"],
		[1_000, "s"],
	]
	for (const [size, unit] of units) if (ms > 0 && ms % size === 0) return `${ms / size}${unit}`
	return `${ms}ms`
}

/** What of a form differs from how it began, as the broker takes it. */
export function changes(options: Option[], before: Form, now: Form): Record<string, unknown> {
	const found: Record<string, unknown> = {}
	for (const one of options) {
		const value = now[one.name]
		if (value === undefined || value === before[one.name]) continue
		found[one.name] = given(one, value)
	}
	return found
}

function given(option: Option, value: string | boolean): unknown {
	if (typeof value === "boolean") return value
	const text = value.trim()
	if (text === "" || text === "none") return null
	if (option.kind === "count" || option.kind === "bytes") return Number(text)
	if (option.kind === "names") return text.split(/[\s,]+/).filter(Boolean)
	return text
}
