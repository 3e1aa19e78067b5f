import { useState } from "preact/hooks";
import { logIn } from "../core/session";
import { TextField } from "../ui/fields";
import { words } from "../words";

export function LogIn() {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      setFault(words.login.fault(await logIn(user, password)));
    } catch {
      setFault(words.errors.noAnswer);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form class="card" onSubmit={(event) => void submit(event)}>
        <h1>{words.product}</h1>
        <TextField
          label={words.login.user}
          name="username"
          autocomplete="username"
          autoFocus
          required
          value={user}
          onText={setUser}
        />
        <TextField
          label={words.login.password}
          name="password"
          type="password"
          autocomplete="current-password"
          value={password}
          onText={setPassword}
        />
        {fault !== "" && (
          <p class="fault" role="alert">
            {fault}
          </p>
        )}
        <button type="submit" class="primary" disabled={isBusy}>
          {words.login.button}
        </button>
      </form>
    </main>
  );
}
