import { useState } from 'react';
import { DownloadOutlined, EditOutlined } from '@ant-design/icons';
import { Button, Input, Popover, Space } from 'antd';
import { useTranslation } from 'react-i18next';

const MAX_NAME_LENGTH = 255;

/**
 * Download the whole list as a CSV file, under the default name or a name that the user enters.
 * `url` contains the filters of the list.
 */
export function CsvExport({ url }: { url: string }) {
  const { t } = useTranslation();
  const [name, setName] = useState('');
  const chosen = name.trim();
  const named = `${url}&filename=${encodeURIComponent(chosen)}`;
  return (
    <Space.Compact>
      <Button icon={<DownloadOutlined />} href={url} download aria-label={t('table.export')} />
      <Popover
        trigger="click"
        placement="bottomRight"
        title={t('table.export')}
        content={
          <Space.Compact>
            <Input
              value={name}
              maxLength={MAX_NAME_LENGTH}
              onChange={event => setName(event.target.value)}
              placeholder={t('table.file-name')}
              aria-label={t('table.file-name')}
            />
            <Button href={chosen ? named : url} download>
              {t('table.download')}
            </Button>
          </Space.Compact>
        }
      >
        <Button icon={<EditOutlined />} aria-label={t('table.export-as')} />
      </Popover>
    </Space.Compact>
  );
}
