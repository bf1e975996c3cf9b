import type { ReactNode } from 'react';

/** Area that scrolls wide content horizontally, also with the keyboard. */
export function ScrollArea({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className="bai-table" role="group" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}
