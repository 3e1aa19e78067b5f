import { useEffect, useState } from "preact/hooks";
import { fault as faultThere, goThere, identityHost } from "../core/identity";
import { logIn } from "../core/session";
import { TextField } from "../ui/fields";
import { words } from "../words";

export function LogIn() {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [fault, setFault] = useState(faultThere);
  const [isBusy, setBusy] = useState(false);
  const [host, setHost] = useState<string | undefined>(undefined);
  useEffect(() => {
    identityHost().then(setHost, () => undefined);
  }, []);
  const ask = async (asking: () => Promise<number>) => {
    setBusy(true);
    try {
      setFault(words.login.fault(await asking()));
    } catch {
      setFault(words.errors.noAnswer);
    } finally {
      setBusy(false);
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void ask(() => logIn(user, password));
  };
  return (
    <main class="login">
      <form class="card" onSubmit={submit}>
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
        {host !== undefined && (
          <button type="button" disabled={isBusy} onClick={() => void ask(goThere)}>
            {words.login.there(host)}
          </button>
        )}
      </form>
    </main>
  );
}
