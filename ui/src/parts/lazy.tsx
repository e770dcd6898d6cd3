/** Components whose code is fetched when they are first shown. */

import type { ComponentChildren, ComponentType } from "preact";
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { Trouble } from "./states";

const Fallback = createContext<ComponentChildren>(null);

export function Suspense({ fallback, children }: { fallback: ComponentChildren; children: ComponentChildren }) {
  return <Fallback.Provider value={fallback}>{children}</Fallback.Provider>;
}

export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let known: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [component, setComponent] = useState<{ is: ComponentType<P> } | null>(known && { is: known });
    const [error, setError] = useState<Error | null>(null);
    const [tries, setTries] = useState(0);
    const fallback = useContext(Fallback);
    useEffect(() => {
      if (component) return;
      load().then(
        (loaded) => {
          known = loaded;
          setComponent({ is: loaded });
        },
        // A newer version was installed: its files have other names, and a reload finds them.
        () => setError(new Error("a part of this page could not be loaded; reload the page if this stays so")),
      );
    }, [tries]);
    if (error) return <Trouble error={error} again={() => (setError(null), setTries(tries + 1))} />;
    const Loaded = component?.is;
    return Loaded ? <Loaded {...props} /> : <>{fallback}</>;
  };
}
