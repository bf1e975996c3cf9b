import * as React from 'react';

export function Button(props: {
  label: string;
  /** What the action applies to. Screen readers need it if buttons have the same label. */
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
