// Login, where keys are on: an API key for a session. The key is sent once and kept nowhere in the page.

import { useState } from "preact/hooks"
import { told } from "../api/call"
import { logIn } from "../api/session"
import { Logo } from "../parts/icon"
import { Command } from "../parts/states"

export function Login() {
	const [key, setKey] = useState("")
	const [busy, setBusy] = useState(false)
	const [error, setError] = useState<unknown>(null)
	const submit = async (event: Event) => {
		event.preventDefault()
		setBusy(true)
		setError(null)
		try {
			await logIn(key.trim())
		} catch (caught) {
			setError(caught)
		} finally {
			setBusy(false)
		}
	}
	return (
		<main class="alone">
			<form class="login" onSubmit={submit}>
				<Logo />
				<h1>Trine</h1>
				<p>This broker asks for an API key.</p>
				<label class="field">
					<span>API key</span>
					<input
						class="input mono"
						type="password"
						name="key"
						autocomplete="current-password"
						placeholder="trine_…"
						value={key}
						onInput={(event) => setKey(event.currentTarget.value)}
					/>
				</label>
				{error !== null && (
					<div class="note bad" role="alert">
						{told(error)}
					</div>
				)}
				<button type="submit" class="button primary" disabled={busy || !key.trim()}>
					{busy && <span class="spinner" aria-hidden="true" />} Log in
				</button>
				<div class="login-more">
					No key? Whoever runs the broker makes one:
					<Command text="trine key create --keys-file keys.yaml --role read-only --id me" />
				</div>
			</form>
		</main>
	)
}
