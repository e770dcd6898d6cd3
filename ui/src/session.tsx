/** Who we are to the server, for every part of the page that asks whether a button may be pressed. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Me, Role } from "./contract";

export const Session = createContext<Me | null>(null);

const RANK: Record<Role, number> = { read: 0, operate: 1, admin: 2 };

/** Null when we may do what needs `role`; otherwise why not, for the button's title. */
export function useRefusal(role: Role): string | null {
  const me = useContext(Session);
  if (me === null) return "not signed in";
  if (me.readonly_reason) return me.readonly_reason;
  return RANK[me.role] >= RANK[role] ? null : `this needs the role "${role}", and you have "${me.role}"`;
}

export function useMe(): Me | null {
  return useContext(Session);
}
