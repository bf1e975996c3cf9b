import * as React from 'react';

export function Button(props: {
  label: string;
  /** What it is about: two buttons of one name are told apart by ear. */
  of?: string;
  onClick: () => void;
  isDanger?: boolean;
}): React.ReactElement {
  const { label, of, onClick, isDanger = false } = props;
  return (
    <button
      type="button"
      className={`bai-Button${isDanger ? ' bai-mod-danger' : ''}`}
      aria-label={of ? `${label}: ${of}` : label}
      onClick={onClick}
    >
      {label}
    </button>
  );
}
