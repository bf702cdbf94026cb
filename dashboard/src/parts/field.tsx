// Fields of forms: a label, the input, and a line that says what is meant.

import type { ComponentChildren } from "preact"

interface FieldProps {
	label: string
	hint?: ComponentChildren
	children: ComponentChildren
	wide?: boolean
}

export function Field({ label, hint, children, wide }: FieldProps) {
	return (
		// biome-ignore lint/a11y/noLabelWithoutControl: the input is among the children
		<label class={wide ? "field wide" : "field"}>
			<span>{label}</span>
			{children}
			{hint && <small>{hint}</small>}
		</label>
	)
}

interface TextProps {
	label: string
	value: string
	onInput: (value: string) => void
	hint?: ComponentChildren
	placeholder?: string
	type?: "text" | "number" | "datetime-local"
	mono?: boolean
	wide?: boolean
	/** The id of a datalist. */
	list?: string
	autofocus?: boolean
	step?: string
}

export function Text({ label, hint, wide, onInput, mono, type = "text", ...rest }: TextProps) {
	const more = rest as { value: string; placeholder?: string } // the types know no list beside any type
	return (
		<Field label={label} hint={hint} {...(wide ? { wide } : {})}>
			<input
				class={mono ? "input mono" : "input"}
				type={type as "text"}
				autocomplete="off"
				spellcheck={false}
				{...more}
				onInput={(event) => onInput(event.currentTarget.value)}
			/>
		</Field>
	)
}

interface ChoiceProps<T extends string> {
	label: string
	value: T
	options: readonly (T | readonly [T, string])[]
	onInput: (value: T) => void
	hint?: ComponentChildren
	wide?: boolean
}

export function Choice<T extends string>({ label, value, options, onInput, hint, wide }: ChoiceProps<T>) {
	return (
		<Field label={label} hint={hint} {...(wide ? { wide } : {})}>
			<Select label={label} value={value} options={options} onInput={onInput} />
		</Field>
	)
}

/** A select without a visible label, for rows of filters. */
export function Select<T extends string>({ label, value, options, onInput }: ChoiceProps<T>) {
	return (
		<select
			class="input"
			aria-label={label}
			value={value}
			onChange={(event) => onInput(event.currentTarget.value as T)}
		>
			{options.map((one) => {
				const [name, text] = typeof one === "string" ? [one, one] : one
				return (
					<option key={name} value={name} selected={name === value}>
						{text}
					</option>
				)
			})}
		</select>
	)
}

interface CheckProps {
	label: string
	value: boolean
	onInput: (value: boolean) => void
	hint?: string
}

export function Check({ label, value, onInput, hint }: CheckProps) {
	return (
		<label class="check">
			<input type="checkbox" checked={value} onChange={(event) => onInput(event.currentTarget.checked)} />
			<span>
				{label}
				{hint && <small>{hint}</small>}
			</span>
		</label>
	)
}

interface SegmentsProps<T extends string> {
	label: string
	value: T
	options: readonly (readonly [T, string])[]
	onInput: (value: T) => void
}

/** A choice among a few, all of them to be seen. */
export function Segments<T extends string>({ label, value, options, onInput }: SegmentsProps<T>) {
	return (
		<fieldset class="segments" aria-label={label}>
			{options.map(([name, text]) => (
				<button key={name} type="button" aria-pressed={name === value} onClick={() => onInput(name)}>
					{text}
				</button>
			))}
		</fieldset>
	)
}
