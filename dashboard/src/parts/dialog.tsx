// Dialogs, on the browser's own <dialog>: it keeps the focus inside and closes on Esc by itself.

import type { ComponentChildren } from "preact"
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks"
import { told } from "../api/call"
import { Icon } from "./icon"

interface DialogProps {
	title: string
	onClose: () => void
	children: ComponentChildren
	footer?: ComponentChildren
	wide?: boolean
	onSubmit?: () => void
}

export function Dialog({ title, onClose, children, footer, wide, onSubmit }: DialogProps) {
	const box = useRef<HTMLDialogElement>(null)
	const name = useId()
	// Before anything is painted: what has the focus now gets it back when the dialog closes.
	useLayoutEffect(() => {
		const dialog = box.current
		dialog?.showModal()
		return () => dialog?.close()
	}, [])
	const submit = (event: Event) => {
		event.preventDefault()
		onSubmit?.()
	}
	return (
		<dialog
			ref={box}
			class={wide ? "dialog wide" : "dialog"}
			aria-labelledby={name}
			onCancel={(event) => {
				event.preventDefault()
				onClose()
			}}
		>
			<form method="dialog" onSubmit={submit} noValidate>
				<header>
					<h2 id={name}>{title}</h2>
					<button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
						<Icon name="close" />
					</button>
				</header>
				<div class="dialog-body">{children}</div>
				{footer && <footer>{footer}</footer>}
			</form>
		</dialog>
	)
}

interface ActProps {
	title: string
	/** The word on the button. */
	verb: string
	onClose: () => void
	/** Does it; the dialog closes when it is done and stays, with the error, when it is not. */
	act: () => Promise<void>
	children?: ComponentChildren
	danger?: boolean
	/** The name that must be typed first. */
	typed?: string
	ready?: boolean
	wide?: boolean
	extra?: ComponentChildren
}

/** A dialog that does one thing: says what will happen, does it, or tells why not. */
export function Act({ title, verb, onClose, act, children, danger, typed, ready = true, wide, extra }: ActProps) {
	const [busy, setBusy] = useState(false)
	const [error, setError] = useState<unknown>(null)
	const [name, setName] = useState("")
	const able = ready && !busy && (typed === undefined || name === typed)
	const submit = async () => {
		if (!able) return
		setBusy(true)
		setError(null)
		try {
			await act()
			onClose()
		} catch (caught) {
			setError(caught)
			setBusy(false)
		}
	}
	const footer = (
		<>
			{extra}
			<span class="grow" />
			<button type="button" class="button" onClick={onClose}>
				Cancel
			</button>
			<button type="submit" class={danger ? "button danger" : "button primary"} disabled={!able}>
				{busy ? <span class="spinner" aria-hidden="true" /> : null}
				{verb}
			</button>
		</>
	)
	return (
		<Dialog title={title} onClose={onClose} onSubmit={submit} footer={footer} {...(wide ? { wide } : {})}>
			{children}
			{typed !== undefined && (
				<label class="field">
					<span>
						Type <b class="mono">{typed}</b> to confirm
					</span>
					<input
						class="input mono"
						value={name}
						autocomplete="off"
						spellcheck={false}
						onInput={(event) => setName(event.currentTarget.value)}
					/>
				</label>
			)}
			{error !== null && (
				<div class="note bad" role="alert">
					{told(error)}
				</div>
			)}
		</Dialog>
	)
}
