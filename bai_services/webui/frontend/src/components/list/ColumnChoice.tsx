import { useMemo, useState } from 'react';
import { SettingOutlined } from '@ant-design/icons';
import { Button, Checkbox, Empty, Flex, Input, Modal } from 'antd';
import { useTranslation } from 'react-i18next';

interface Column {
  key: string;
  title: string;
  isOptional?: boolean;
}

interface ColumnChoiceProps {
  columns: readonly Column[];
  hidden: readonly string[];
  onChange: (hidden: string[]) => void;
}

/** A button that opens a dialog to show and hide columns. The first column cannot be hidden. */
export function ColumnChoice({ columns, hidden, onChange }: ColumnChoiceProps) {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  const [text, setText] = useState('');
  const named = columns.filter(column => column.title);
  const found = named.filter(({ title }) => title.toLowerCase().includes(text.toLowerCase()));
  const toggle = (key: string, isShown: boolean) =>
    onChange(isShown ? hidden.filter(other => other !== key) : [...hidden, key]);
  const defaults = columns.filter(({ isOptional }) => isOptional).map(({ key }) => key);
  return (
    <>
      <Button
        icon={<SettingOutlined />}
        aria-label={t('table.columns')}
        aria-haspopup="dialog"
        onClick={() => setIsOpen(true)}
      />
      <Modal
        open={isOpen}
        onCancel={() => setIsOpen(false)}
        afterClose={() => setText('')}
        title={t('table.columns')}
        width={320}
        footer={<Button onClick={() => onChange(defaults)}>{t('table.default-columns')}</Button>}
      >
        <Input.Search
          allowClear
          value={text}
          onChange={event => setText(event.target.value)}
          placeholder={t('table.find-column')}
          aria-label={t('table.find-column')}
          style={{ marginBottom: 12 }}
        />
        <Flex vertical gap={4} role="group" aria-label={t('table.columns')}>
          {found.map(column => {
            const isLocked = column === columns[0];
            return (
              <Checkbox
                key={column.key}
                checked={isLocked || !hidden.includes(column.key)}
                disabled={isLocked}
                onChange={event => toggle(column.key, event.target.checked)}
              >
                {column.title}
              </Checkbox>
            );
          })}
        </Flex>
        {found.length === 0 && (
          <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('table.no-column')} />
        )}
      </Modal>
    </>
  );
}

/** Return the keys of a list's hidden columns, and a function that stores them in this browser. */
export function useHiddenColumns(name: string, columns: readonly Column[]) {
  const key = `bai-columns-${name}`;
  const [chosen, setChosen] = useState(() => localStorage.getItem(key)?.split(','));
  // Until the user chooses columns, the defaults apply; they may change with the user's role.
  const hidden = useMemo(
    () => chosen ?? columns.filter(column => column.isOptional).map(column => column.key),
    [chosen, columns]
  );
  const store = (keys: string[]) => {
    localStorage.setItem(key, keys.join(','));
    setChosen(keys);
  };
  return [hidden, store] as const;
}
