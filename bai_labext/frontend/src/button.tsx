import * as React from 'react';

export function Button(props: {
  label: string;
  /** Object of the action, by which screen readers distinguish buttons with equal labels. */
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
