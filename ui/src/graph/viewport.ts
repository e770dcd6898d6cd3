/** Which part of a drawing is on the screen: moved by dragging, keys and buttons, zoomed by the wheel and by two fingers. */

import { type RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Viewport {
  x: number;
  y: number;
  scale: number;
}

export interface Size {
  width: number;
  height: number;
}

const SMALLEST = 0.02;
const LARGEST = 3;
const FIT_LARGEST = 1;
const LEGIBLE = 0.72; // what is too tall to be read as a whole begins at its top
const MARGIN = 16;

export interface Control {
  view: Viewport;
  size: Size;
  fit: () => void;
  zoom: (factor: number) => void;
  pan: (dx: number, dy: number) => void;
  /** Brings a place of the drawing to the middle. */
  centre: (x: number, y: number) => void;
  /** Whether the last press was the beginning of a drag, so that it was no click. */
  dragged: () => boolean;
}

export function useViewport(element: RefObject<SVGSVGElement | null>, content: Size | null): Control {
  const [view, setView] = useState<Viewport>({ x: 0, y: 0, scale: 1 });
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  const touched = useRef(false); // until somebody moves it, the whole is kept in view
  const moved = useRef(false);

  useLayoutEffect(() => {
    const svg = element.current;
    if (!svg) return;
    const measure = () => setSize({ width: svg.clientWidth, height: svg.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(svg);
    return () => observer.disconnect();
  }, []);

  const show = useCallback((legible: boolean) => {
    if (!content || !size.width || !content.width) return;
    const across = (size.width - MARGIN) / content.width;
    const whole = Math.min(across, (size.height - MARGIN) / content.height);
    const scale = Math.max(SMALLEST, Math.min(FIT_LARGEST, legible ? Math.max(whole, Math.min(across, LEGIBLE)) : whole));
    touched.current = !legible;
    setView({ scale, x: (size.width - content.width * scale) / 2, y: Math.max(MARGIN / 2, (size.height - content.height * scale) / 2) });
  }, [content?.width, content?.height, size.width, size.height]);
  const fit = useCallback(() => show(false), [show]);
  useLayoutEffect(() => {
    if (!touched.current) show(true);
  }, [show]);

  const zoomAt = useCallback((factor: number, x: number, y: number) => {
    touched.current = true;
    setView((view) => {
      const scale = Math.max(SMALLEST, Math.min(LARGEST, view.scale * factor));
      const by = scale / view.scale;
      return { scale, x: x - (x - view.x) * by, y: y - (y - view.y) * by };
    });
  }, []);
  const pan = useCallback((dx: number, dy: number) => {
    touched.current = true;
    setView((view) => ({ ...view, x: view.x + dx, y: view.y + dy }));
  }, []);

  useEffect(() => {
    const svg = element.current;
    if (!svg) return;
    const fingers = new Map<number, { x: number; y: number }>();
    const inside = (event: { clientX: number; clientY: number }) => {
      const box = svg.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      const { x, y } = inside(event);
      zoomAt(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), x, y);
    };
    const down = (event: PointerEvent) => {
      if (event.button !== 0) return;
      fingers.set(event.pointerId, inside(event));
      moved.current = false;
    };
    const move = (event: PointerEvent) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const now = inside(event);
      const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const distance = (point: { x: number; y: number }) => Math.hypot(point.x - other.x, point.y - other.y) || 1;
        moved.current = true;
        zoomAt(distance(now) / distance(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
      } else {
        if (!moved.current && Math.hypot(now.x - before.x, now.y - before.y) < 4) return;
        if (!moved.current) svg.setPointerCapture(event.pointerId);
        moved.current = true;
        pan(now.x - before.x, now.y - before.y);
      }
      fingers.set(event.pointerId, now);
    };
    const up = (event: PointerEvent) => void fingers.delete(event.pointerId);
    svg.addEventListener("wheel", wheel, { passive: false });
    svg.addEventListener("pointerdown", down);
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerup", up);
    svg.addEventListener("pointercancel", up);
    return () => {
      svg.removeEventListener("wheel", wheel);
      svg.removeEventListener("pointerdown", down);
      svg.removeEventListener("pointermove", move);
      svg.removeEventListener("pointerup", up);
      svg.removeEventListener("pointercancel", up);
    };
  }, []);

  return {
    view,
    size,
    fit,
    pan,
    zoom: (factor) => zoomAt(factor, size.width / 2, size.height / 2),
    centre: (x, y) => {
      touched.current = true;
      setView((view) => ({ ...view, x: size.width / 2 - x * view.scale, y: size.height / 2 - y * view.scale }));
    },
    dragged: () => moved.current,
  };
}
