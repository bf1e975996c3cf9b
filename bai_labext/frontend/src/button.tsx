import * as React from 'react';

export function Button(props: {
  label: string;
  /** Object of the action for screen readers, because several buttons have the same label. */
  target?: string;
  onClick: () => void;
  isDanger?: boolean;
}): React.ReactElement {
  const { label, target, onClick, isDanger = false } = props;
  return (
    <button
      type="button"
      className={`bai-Button${isDanger ? ' bai-mod-danger' : ''}`}
      aria-label={target ? `${label}: ${target}` : label}
      onClick={onClick}
    >
      {label}
    </button>
  );
}
