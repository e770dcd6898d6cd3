/** Asks for a token. It goes to the server once, which answers with a cookie that no script can read. */

import { useState } from "preact/hooks";
import { ApiError, signIn } from "../api";
import { Command } from "../parts/copy";

export function SignInPage({ signedIn }: { signedIn: () => void }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(token.trim());
      setToken("");
      signedIn();
    } catch (error) {
      const refused = error instanceof ApiError && (error.status === 401 || error.status === 403);
      setTrouble(refused ? "The server does not know this token." : (error as Error).message);
    }
    setBusy(false);
  };
  return (
    <main class="sign-in">
      <form onSubmit={submit}>
        <svg width="36" height="36" viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="8" class="mark-ground" />
          <path d="M10 7v18M22 7v18M10 16h12" class="mark-line" />
        </svg>
        <h1>Sign in to Holdfast</h1>
        <label class="field">
          <span>Token</span>
          <input
            type="password"
            value={token}
            required
            autofocus
            autocomplete="current-password"
            onInput={(event) => setToken(event.currentTarget.value)}
            aria-invalid={trouble !== ""}
            aria-describedby="sign-in-trouble"
          />
        </label>
        <p id="sign-in-trouble" class="bad-text" role="alert">
          {trouble}
        </p>
        <button type="submit" class="primary" disabled={busy || !token.trim()}>
          {busy ? "Asking…" : "Sign in"}
        </button>
        <p class="muted small">
          Whoever started the server chose the token: in the variable HOLDFAST_UI_TOKEN, or in a file.
        </p>
        <Command text="holdfast ui --token-file token.txt" />
      </form>
    </main>
  );
}
