// Keeps the frame alive when a page fails: a node of another version may answer what the page does not know.

import { Component, type ComponentChildren } from "preact";
import { words } from "../words";
import { Failure } from "./parts";

interface State {
  error: unknown;
}

export class Boundary extends Component<{ children: ComponentChildren }, State> {
  override state: State = { error: undefined };

  static override getDerivedStateFromError(error: unknown): State {
    return { error };
  }

  override render() {
    if (this.state.error === undefined) return this.props.children;
    return (
      <Failure
        error={`${words.oops} (${String(this.state.error)})`}
        reload={() => this.setState({ error: undefined })}
      />
    );
  }
}
