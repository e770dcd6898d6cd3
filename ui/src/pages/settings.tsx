/** How this page looks here, and who we are to the server. */

import { signOut } from "../api";
import { complain, say } from "../parts/toast";
import { useMe } from "../session";
import { type Theme, useTheme } from "../settings";
import { useConnection } from "../live";

const THEMES: Record<Theme, string> = { system: "As the system", light: "Light", dark: "Dark" };
const ROLES = {
  read: "may look at everything, and change nothing",
  operate: "may start, cancel, pause, resume, retry, answer and send",
  admin: "may do everything, also many runs at once and what cannot be taken back",
} as const;

export function SettingsPage({ signedOut }: { signedOut: () => void }) {
  const me = useMe();
  const [theme, setTheme] = useTheme();
  const connection = useConnection();
  const leave = async () => {
    try {
      await signOut();
      say("Signed out.");
      signedOut();
    } catch (error) {
      complain(error, "Sign out");
    }
  };
  return (
    <section class="page settings-page" aria-labelledby="settings-title">
      <header class="page-head">
        <h1 id="settings-title">Settings</h1>
      </header>
      <fieldset class="choices">
        <legend>Colours</legend>
        {(Object.keys(THEMES) as Theme[]).map((each) => (
          <label key={each}>
            <input type="radio" name="theme" checked={theme === each} onChange={() => setTheme(each)} /> {THEMES[each]}
          </label>
        ))}
      </fieldset>
      {me && (
        <>
          <h2>You</h2>
          <dl class="facts stacked">
            <div>
              <dt>Name</dt>
              <dd>{me.name}</dd>
            </div>
            <div>
              <dt>Role</dt>
              <dd>
                <strong>{me.role}</strong>: {ROLES[me.role]}
                {me.readonly_reason && <p class="muted">{me.readonly_reason}</p>}
              </dd>
            </div>
            <div>
              <dt>Payloads</dt>
              <dd>{me.redacted ? "some fields are blacked out before they leave the server" : "are shown as they are"}</dd>
            </div>
          </dl>
          <p>
            <button type="button" onClick={leave}>
              Sign out
            </button>
          </p>
          <h2>Server</h2>
          <dl class="facts stacked">
            <div>
              <dt>Version</dt>
              <dd>{me.version}</dd>
            </div>
            <div>
              <dt>Store</dt>
              <dd>{me.store}</dd>
            </div>
            <div>
              <dt>Code</dt>
              <dd>{me.code ? "workflows are loaded: states, graphs and starting work" : "no workflow module is loaded: give one to holdfast ui for states, graphs and starting"}</dd>
            </div>
            <div>
              <dt>Live</dt>
              <dd>{connection}</dd>
            </div>
          </dl>
        </>
      )}
    </section>
  );
}
